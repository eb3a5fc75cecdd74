package client

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	sealanev1 "github.com/sealane/sealane/api/gen/sealane/v1"
)

// Messages walks over the messages that a request selects, page after page, beginning at its page_token. It ends at the first error.
func (c *Client) Messages(ctx context.Context, req *sealanev1.ListMessagesRequest) iter.Seq2[*sealanev1.MessageSummary, error] {
	req = proto.CloneOf(req)
	return pages(func() ([]*sealanev1.MessageSummary, string, error) {
		resp, err := c.query.ListMessages(ctx, req)
		req.PageToken = resp.GetNextPageToken()
		return resp.GetMessages(), req.GetPageToken(), err
	})
}

// DeadLetters walks over dead letters in the same way.
func (c *Client) DeadLetters(ctx context.Context, req *sealanev1.ListDeadLettersRequest) iter.Seq2[*sealanev1.DeadLetter, error] {
	req = proto.CloneOf(req)
	return pages(func() ([]*sealanev1.DeadLetter, string, error) {
		resp, err := c.query.ListDeadLetters(ctx, req)
		req.PageToken = resp.GetNextPageToken()
		return resp.GetDeadLetters(), req.GetPageToken(), err
	})
}

// UncertainAttempts walks over the open obligations in the same way.
func (c *Client) UncertainAttempts(
	ctx context.Context, req *sealanev1.ListUncertainAttemptsRequest,
) iter.Seq2[*sealanev1.UncertainAttempt, error] {
	req = proto.CloneOf(req)
	return pages(func() ([]*sealanev1.UncertainAttempt, string, error) {
		resp, err := c.query.ListUncertainAttempts(ctx, req)
		req.PageToken = resp.GetNextPageToken()
		return resp.GetUncertainAttempts(), req.GetPageToken(), err
	})
}

// Lanes walks over lanes in the same way.
func (c *Client) Lanes(ctx context.Context, req *sealanev1.ListLanesRequest) iter.Seq2[*sealanev1.Lane, error] {
	req = proto.CloneOf(req)
	return pages(func() ([]*sealanev1.Lane, string, error) {
		resp, err := c.query.ListLanes(ctx, req)
		req.PageToken = resp.GetNextPageToken()
		return resp.GetLanes(), req.GetPageToken(), err
	})
}

// pages turns a function that gets the next page into a walk over rows.
func pages[T any](page func() (rows []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			rows, next, err := page()
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, r := range rows {
				if !yield(r, nil) {
					return
				}
			}
			if next == "" {
				return
			}
		}
	}
}
