package delivery_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/sealane/sealane/delivery"
	"pgregory.net/rapid"
)

func TestRegistry(t *testing.T) {
	var r delivery.Registry
	if _, err := r.Open("http", nil); !errors.Is(err, delivery.ErrUnknownAdapter) || !strings.Contains(err.Error(), `"http"`) {
		t.Errorf("empty: %v", err)
	}
	wrong := errors.New("wrong")
	var got []byte
	open := func(encoded []byte) (delivery.Target, error) { got = encoded; return nil, wrong }
	r.Register("nats", open)
	r.Register("http", open)
	if _, err := r.Open("http", []byte("spec")); !errors.Is(err, wrong) || string(got) != "spec" {
		t.Errorf("%v, %q", err, got)
	}
	if k := r.Kinds(); !slices.Equal(k, []string{"http", "nats"}) {
		t.Errorf("%v", k)
	}
	for name, register := range map[string]func(){
		"twice": func() { r.Register("http", open) }, "no kind": func() { r.Register("", open) }, "no opener": func() { r.Register("x", nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			register()
		}()
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "plain": "plain", "a\r\nb\x00c\x7f": "a??b?c?", "é 😀": "é 😀", "bad \xff\xfe": "bad ??", "\u2028\u202e": "??", "tab\t": "tab?",
		strings.Repeat("x", 300): strings.Repeat("x", 256), strings.Repeat("é", 200): strings.Repeat("é", 128), "x" + strings.Repeat("é", 200): "x" + strings.Repeat("é", 127),
	} {
		if got := delivery.Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestCleanAlways: whatever comes in, what comes out is safe to store and show, and cleaning it again changes nothing.
func TestCleanAlways(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOf(rapid.Byte()).Draw(t, "in"))
		bound := rapid.IntRange(0, 300).Draw(t, "bound")
		out := delivery.CleanTo(in, bound)
		if len(out) > bound || !utf8.ValidString(out) || strings.ContainsFunc(out, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("%q", out)
		}
		if again := delivery.CleanTo(out, bound); again != out {
			t.Fatalf("%q became %q", out, again)
		}
	})
}

func TestConnectError(t *testing.T) {
	cause := errors.New("cause")
	err := error(&delivery.ConnectError{Class: "DNS", Detail: "no such host", Err: cause})
	if !errors.Is(err, cause) || err.Error() != "connect: DNS: no such host" {
		t.Errorf("%v", err)
	}
}
