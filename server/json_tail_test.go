package server

import (
	"strings"
	"testing"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// TestBodyHasOneValue: a second value after the first would be dropped without a word.
func TestBodyHasOneValue(t *testing.T) {
	for body, ok := range map[string]bool{
		`{"destination":"ok"}`: true, "  {\"destination\":\"ok\"}\r\n ": true, `{"destination":"ok"} {"destination":"ok"}`: false,
		`{"destination":"ok"} {"garbage`: false, `{"destination":"ok"}]`: false,
	} {
		var m sealanev1.SubmitRequest
		err := (&jsonCodec{}).NewDecoder(strings.NewReader(body)).Decode(&m)
		if (err == nil) != ok {
			t.Errorf("%q: %v", body, err)
		}
	}
}
