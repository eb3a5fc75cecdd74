package shard_test

import (
	"testing"

	"github.com/sealane/sealane/shard/shardtest"
)

// TestScripts runs testdata/script: each file is a short story of messages in one shard. After every entry the books are recounted.
func TestScripts(t *testing.T) { shardtest.Run(t, "testdata/script") }
