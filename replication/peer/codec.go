package peer

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// packet is a gRPC message of raw bytes. Sending takes the parts; receiving fills data, which the receiver frees.
type packet struct {
	parts mem.BufferSlice
	data  mem.Buffer
}

func (p *packet) free() {
	if p.data != nil {
		p.data.Free()
		p.data = nil
	}
}

// codec passes packets as they are and everything else, the messages of registered services, to the protobuf codec. Both sides force it, so
// its name changes nothing on the wire but the content type.
type codec struct{ messages encoding.CodecV2 }

func newCodec() codec { return codec{messages: encoding.GetCodecV2(proto.Name)} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if p, ok := v.(*packet); ok {
		return p.parts, nil
	}
	return c.messages.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	p, ok := v.(*packet)
	if !ok {
		return c.messages.Unmarshal(data, v)
	}
	if n := data.Len(); n > maxMessageBytes {
		return fmt.Errorf("%w: message of %d bytes, limit %d", ErrMalformed, n, maxMessageBytes)
	}
	p.data = data.MaterializeToBuffer(mem.DefaultBufferPool())
	return nil
}

func (codec) Name() string { return proto.Name }
