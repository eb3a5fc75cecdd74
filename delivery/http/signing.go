package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sealane/sealane/delivery"
)

// SecretTime is how long a resolved secret is used before its reference is read again, so that a rotated secret needs no new version of the
// destination (R201).
const SecretTime = 30 * time.Second

const secretPrefix = "whsec_"

// signer makes the v1 signatures of Standard Webhooks with one secret.
type signer struct{ keyed sync.Pool } // of hash.Hash

var errSecretForm = errors.New("not whsec_ and base64")

func newSigner(secret string) (*signer, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil || len(key) == 0 {
		return nil, errSecretForm // without the cause: it would quote the secret
	}
	s := &signer{}
	s.keyed.New = func() any { return hmac.New(sha256.New, key) }
	return s, nil
}

// sign appends the signature of (id, timestamp, payload).
func (s *signer) sign(b []byte, id, timestamp string, payload []byte) []byte {
	h := s.keyed.Get().(hash.Hash)
	h.Reset()
	var room [128]byte
	h.Write(append(append(append(append(room[:0], id...), '.'), timestamp...), '.'))
	h.Write(payload)
	sum := h.Sum(room[:0])
	s.keyed.Put(h)
	b = append(b, "v1,"...)
	return base64.StdEncoding.AppendEncode(b, sum)
}

// signing is a target's resolved secrets.
type signing struct {
	signers []*signer // in the order of the destination
	until   time.Time
}

// signature signs with every secret of the target; "" when it has none.
func (t *Target) signature(id string, now time.Time, payload []byte) (string, error) {
	signers, err := t.signers(now)
	if err != nil || len(signers) == 0 {
		return "", err
	}
	timestamp := strconv.FormatInt(now.Unix(), 10)
	b := make([]byte, 0, len(signers)*48)
	for i, s := range signers {
		if i > 0 {
			b = append(b, ' ')
		}
		b = s.sign(b, id, timestamp, payload)
	}
	return string(b), nil
}

// signers resolves the target's secrets, again after SecretTime. The error is a *delivery.ConnectError that blocks the lane; it names the
// reference, never the value nor the cause, which could hold the value.
func (t *Target) signers(now time.Time) ([]*signer, error) {
	if len(t.spec.Secrets) == 0 {
		return nil, nil
	}
	if s := t.secrets.Load(); s != nil && now.Before(s.until) {
		return s.signers, nil
	}
	s := &signing{until: now.Add(SecretTime)}
	for _, ref := range t.spec.Secrets {
		name := "env " + ref.Env
		if ref.Env == "" {
			name = "file " + ref.File
		}
		if t.a.opt.Secret == nil {
			return nil, blocked(ClassSecret, "secret ("+name+") cannot be resolved on this node")
		}
		value, err := t.a.opt.Secret(ref)
		if err != nil {
			return nil, blocked(ClassSecret, "secret ("+name+") is not available")
		}
		one, err := newSigner(value)
		if err != nil {
			return nil, blocked(ClassSecret, "secret ("+name+") is not a Standard Webhooks secret: "+err.Error())
		}
		s.signers = append(s.signers, one)
	}
	t.secrets.Store(s)
	return s.signers, nil
}

func blocked(class, detail string) *delivery.ConnectError {
	return &delivery.ConnectError{Class: class, Detail: delivery.Clean(detail), Blocked: true}
}
