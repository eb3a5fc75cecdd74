package webhook

import (
	"net/http"
	"testing"
	"time"
)

// TestRetryAfter is the grammar: digits or a date; everything else is no header at all.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2030, 5, 6, 7, 8, 9, 0, time.UTC)
	in := now.Add(2 * time.Minute)
	for _, c := range []struct {
		values []string
		want   time.Duration
		ok     bool
	}{
		{[]string{"0"}, 0, true}, {[]string{"90"}, 90 * time.Second, true}, {[]string{"007"}, 7 * time.Second, true},
		{[]string{"9223372036"}, 9223372036 * time.Second, true}, {[]string{"9223372037"}, maxRetryAfter, true},
		{[]string{"18446744073709551616"}, maxRetryAfter, true}, {[]string{"99999999999999999999999999999999999999999"}, maxRetryAfter, true},
		{[]string{"99999999999999999999x"}, 0, false},
		{[]string{"1e30"}, 0, false}, {[]string{"-5"}, 0, false}, {[]string{"+3"}, 0, false}, {[]string{"1.5"}, 0, false}, {[]string{""}, 0, false},
		{[]string{" 3"}, 0, false}, {[]string{"3", "4"}, 0, false}, {nil, 0, false}, {[]string{"soon"}, 0, false}, {[]string{"０"}, 0, false},
		{[]string{in.Format(http.TimeFormat)}, 2 * time.Minute, true}, {[]string{in.Format(time.RFC850)}, 2 * time.Minute, true},
		{[]string{in.Format(time.ANSIC)}, 2 * time.Minute, true}, {[]string{now.Add(-time.Hour).Format(http.TimeFormat)}, 0, true},
		{[]string{"Mon, 06 May 2030"}, 0, false},
	} {
		h := http.Header{"Date": {now.Format(http.TimeFormat)}}
		if c.values != nil {
			h["Retry-After"] = c.values
		}
		if got, ok := parseRetryAfter(h, now); got != c.want || ok != c.ok {
			t.Errorf("%q = %s, %v; want %s, %v", c.values, got, ok, c.want, c.ok)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"0", "90", "9223372037", "1e30", "-5", "Mon, 06 May 2030 07:08:09 GMT", ""} {
		f.Add(s)
	}
	now := time.Date(2030, 5, 6, 7, 8, 9, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		if d, ok := parseRetryAfter(http.Header{"Retry-After": {s}}, now); d < 0 || !ok && d != 0 {
			t.Errorf("%q = %s, %v", s, d, ok)
		}
	})
}
