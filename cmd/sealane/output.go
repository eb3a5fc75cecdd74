package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// The forms of --output.
const (
	outputTable = "table"
	outputJSON  = "json"
)

// printJSON prints an answer as the API gives it over REST: the proto's own field names, unset fields included.
func (a *app) printJSON(m proto.Message) error {
	b, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return err
	}
	return a.printRaw(json.RawMessage(b))
}

// printRaw prints JSON indented; protojson's own spacing is random on purpose, so it is laid out anew.
func (a *app) printRaw(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printLine prints an answer as one line of JSON, for streams.
func (a *app) printLine(m proto.Message) error {
	b, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return err
	}
	var line bytes.Buffer
	if err := json.Compact(&line, b); err != nil {
		return err
	}
	line.WriteByte('\n')
	_, err = line.WriteTo(a.out)
	return err
}

// rowsJSON prints a list as the API's list answers look.
func rowsJSON[M proto.Message](a *app, name string, rows []M, next string) error {
	list := make([]json.RawMessage, len(rows))
	for i, r := range rows {
		b, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(r)
		if err != nil {
			return err
		}
		list[i] = b
	}
	return a.printRaw(map[string]any{name: list, "next_page_token": next})
}

// table prints rows in columns as wide as their widest cell.
type table struct{ rows [][]string }

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w io.Writer) {
	var width []int
	for _, r := range t.rows {
		for i, c := range r {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range t.rows {
		var b strings.Builder
		for i, c := range r {
			b.WriteString(c)
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(c)+2))
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// at shows a time in UTC to the millisecond; a dash where there is none.
func at(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().UTC().Format("2006-01-02T15:04:05.000Z")
}

// span shows a duration without more digits than people read.
func span(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// from shows how far a time is from another: `in 3s` or `3s ago`.
func from(t *timestamppb.Timestamp, now time.Time) string {
	d := t.AsTime().Sub(now)
	if d > 0 {
		return "in " + span(d)
	}
	return span(-d) + " ago"
}

// or shows a dash for an empty cell.
func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func number[N ~int | ~int32 | ~uint32 | ~uint64](n N) string { return fmt.Sprint(n) }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// printable makes text of others safe to show on a terminal: control characters become visible.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 {
			return '?'
		}
		return r
	}, s)
}

// size shows a number of bytes.
func size[N ~uint32 | ~uint64](n N) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}
