package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
	"github.com/sealane/sealane/client"
)

// maxPayload is the largest payload that any node takes; a node's own limit may be lower, and it says so.
const maxPayload = 16 << 20

const submitHelp = `Submits one message. The payload is read from --payload, from --file, or from standard input, and is delivered byte for byte.

A submit without a verdict is tried again with the same idempotency key until --timeout has passed. If there is still none, the message may have
been accepted: the command says so, prints the key, and exits with 5.`

type submission struct {
	payload, file, contentType, key, ordering, deliver, expire, traceparent string
	attributes                                                              []string
}

func (a *app) messageSubmit() *cobra.Command {
	var s submission
	c := &cobra.Command{
		Use: "submit DESTINATION", Short: "Submit a message", Long: submitHelp, Args: args("DESTINATION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := a.submission(cmd, args[0], s)
			if err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				accepted, err := c.Submit(ctx, m)
				if err != nil {
					return err
				}
				return a.printAccepted(accepted)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&s.payload, "payload", "", "the payload itself")
	f.StringVarP(&s.file, "file", "f", "", "file with the payload; - is standard input")
	f.StringVar(&s.contentType, "content-type", "", "media type that is passed on (default application/octet-stream)")
	f.StringVar(&s.key, "idempotency-key", "", "makes repeated submits one message, up to 255 bytes; default: a new random one")
	f.StringVar(&s.ordering, "ordering-key", "", "messages with the same key are delivered one after the other, up to 255 bytes")
	f.StringVar(&s.deliver, "deliver-at", "", "earliest delivery: a time, or a duration from now like 90s")
	f.StringVar(&s.expire, "expire-at", "", "last instant of an attempt: a time, or a duration from now")
	f.StringArrayVar(&s.attributes, "attribute", nil, "NAME=VALUE, passed on as sealane-attr-NAME; may be repeated, up to 64")
	f.StringVar(&s.traceparent, "traceparent", "", "W3C traceparent that is passed on")
	return c
}

func (a *app) submission(cmd *cobra.Command, destination string, s submission) (client.Message, error) {
	m := client.Message{
		Destination: destination, ContentType: s.contentType, IdempotencyKey: s.key, OrderingKey: s.ordering, Traceparent: s.traceparent,
	}
	deliver, err := a.timeFlag("deliver-at", s.deliver)
	if err != nil {
		return m, err
	}
	expire, err := a.timeFlag("expire-at", s.expire)
	if err != nil {
		return m, err
	}
	if deliver != nil {
		m.DeliverAt = deliver.AsTime()
	}
	if expire != nil {
		m.ExpireAt = expire.AsTime()
	}
	for _, pair := range s.attributes {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return m, usagef("attribute is %q, want NAME=VALUE", pair)
		}
		if _, twice := m.Attributes[name]; twice {
			return m, usagef("attribute %q stands twice", name)
		}
		if m.Attributes == nil {
			m.Attributes = make(map[string]string, len(s.attributes))
		}
		m.Attributes[name] = value
	}
	m.Payload, err = a.payload(cmd, s)
	return m, err
}

// payload reads the payload from where the flags say.
func (a *app) payload(cmd *cobra.Command, s submission) ([]byte, error) {
	inline, file := cmd.Flags().Changed("payload"), cmd.Flags().Changed("file")
	switch {
	case inline && file:
		return nil, usagef("payload and file exclude each other")
	case inline:
		return []byte(s.payload), nil
	case file && s.file != "-":
		f, err := os.Open(s.file)
		if err != nil {
			return nil, usagef("file: %s: %w", s.file, cause(err))
		}
		defer f.Close()
		return readPayload("file: "+s.file, f)
	case !file && isTerminal(a.in):
		return nil, usagef("payload is missing: name --payload or --file, or send it to standard input")
	}
	return readPayload("standard input", a.in)
}

func readPayload(name string, r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxPayload+1))
	if err != nil {
		return nil, usagef("%s: %w", name, cause(err))
	}
	if len(b) > maxPayload {
		return nil, usagef("%s: the payload has more than %d bytes", name, maxPayload)
	}
	return b, nil
}

func (a *app) printAccepted(s client.Accepted) error {
	if a.output == outputJSON {
		return a.printRaw(struct {
			MessageID      string `json:"message_id"`
			Generation     uint32 `json:"generation"`
			Position       string `json:"position"`
			Deduplicated   bool   `json:"deduplicated"`
			IdempotencyKey string `json:"idempotency_key"`
		}{s.MessageID, s.Generation, s.Position, s.Deduplicated, s.IdempotencyKey})
	}
	note := ""
	if s.Deduplicated {
		note = " (this key had been accepted before: no second message was made)"
	}
	_, err := fmt.Fprintf(a.out, "%s accepted at %s%s\n", s.MessageID, s.Position, note)
	return err
}

// writePayload writes a payload byte for byte.
func (a *app) writePayload(path string, m *sealanev1.Message) error {
	if m.GetTombstone() != nil {
		return fmt.Errorf("the payload was removed (%s, %s)", m.GetTombstone().GetReason(), at(m.GetTombstone().GetRemovedAt()))
	}
	if path == "-" {
		_, err := io.Copy(a.out, bytes.NewReader(m.GetPayload()))
		return err
	}
	if err := os.WriteFile(path, m.GetPayload(), 0o600); err != nil {
		return usagef("payload-to: %s: %w", path, cause(err))
	}
	_, err := fmt.Fprintf(a.out, "%s: %d bytes written to %s\n", m.GetId(), len(m.GetPayload()), path)
	return err
}
