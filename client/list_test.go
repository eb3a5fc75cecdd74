package client

import (
	"context"
	"errors"
	"slices"
	"testing"

	"google.golang.org/grpc"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// pager answers ListMessages page by page; the token of a page is the next page's number.
type pager struct {
	sealanev1.QueryServiceClient
	pages [][]string
	fail  int // page at which it fails; 0: never
	calls int
}

func (p *pager) ListMessages(_ context.Context, r *sealanev1.ListMessagesRequest, _ ...grpc.CallOption) (*sealanev1.ListMessagesResponse, error) {
	p.calls++
	i := 0
	if r.GetPageToken() != "" {
		i = int(r.GetPageToken()[0] - '0')
	}
	if p.fail != 0 && i == p.fail {
		return nil, errors.New("no more")
	}
	resp := &sealanev1.ListMessagesResponse{}
	for _, id := range p.pages[i] {
		resp.Messages = append(resp.Messages, &sealanev1.MessageSummary{Id: id})
	}
	if i+1 < len(p.pages) {
		resp.NextPageToken = string(rune('0' + i + 1))
	}
	return resp, nil
}

func TestMessagesWalksOverPages(t *testing.T) {
	for _, c := range []struct {
		name  string
		pages [][]string
		fail  int
		stop  string
		want  []string
		calls int
		err   bool
	}{
		{"one page", [][]string{{"a", "b"}}, 0, "", []string{"a", "b"}, 1, false},
		{"an empty page between", [][]string{{"a"}, {}, {"b"}}, 0, "", []string{"a", "b"}, 3, false},
		{"nothing", [][]string{{}}, 0, "", nil, 1, false},
		{"stopped early", [][]string{{"a", "b"}, {"c"}}, 0, "a", []string{"a"}, 1, false},
		{"an error on the way", [][]string{{"a"}, {"b"}}, 1, "", []string{"a"}, 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &pager{pages: c.pages, fail: c.fail}
			req := &sealanev1.ListMessagesRequest{}
			var got []string
			var failed error
			for m, err := range (&Client{query: p}).Messages(t.Context(), req) {
				if err != nil {
					failed = err
					continue
				}
				got = append(got, m.GetId())
				if m.GetId() == c.stop {
					break
				}
			}
			if !slices.Equal(got, c.want) || p.calls != c.calls || (failed != nil) != c.err {
				t.Errorf("got %v, %d calls, %v", got, p.calls, failed)
			}
			if req.GetPageToken() != "" {
				t.Error("the caller's request was changed")
			}
		})
	}
}
