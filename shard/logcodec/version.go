package logcodec

// Version numbers the set of commands that this build can read. A node announces it when it registers, and a kind of command that was added
// with a version is proposed only once every node of the cluster announces that version (REPLICATION, Transport security and versions).
//
//	1  one node
//	2  nodes, placement, cluster operations
const Version = 2
