package demo

import (
	"fmt"
	"io"
)

// narrator prints the story. A failed write is remembered by nobody: the story is for people, the result is the returned error.
type narrator struct {
	w      io.Writer
	bold   bool
	scenes int
}

func (n *narrator) say(format string, args ...any) { fmt.Fprintf(n.w, format+"\n", args...) }

func (n *narrator) blank() { fmt.Fprintln(n.w) }

// scene begins a scene.
func (n *narrator) scene(title string) {
	n.scenes++
	text := fmt.Sprintf("%d. %s", n.scenes, title)
	if n.bold {
		text = "\x1b[1m" + text + "\x1b[0m"
	}
	fmt.Fprintf(n.w, "\n%s\n", text)
}

// tell is one line of a scene.
func (n *narrator) tell(format string, args ...any) { n.say("   "+format, args...) }
