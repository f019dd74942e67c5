package router

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/dchest/siphash"

	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/services/router/broker"
)

// token names one delivery in its outcome's subject. It does not name the
// lane's epoch: work that was finished under one owner counts under the next.
type token struct {
	key                 ledger.Key
	generation, attempt uint32
	// turn tells the deliveries of one attempt apart: how often it came back
	// from a vanished worker, with no outcome, or unfinished from a worker that
	// shut down, which would know the same token for one it has ended.
	turn uint16
}

const (
	tokenBody = 8 + 4 + 4 + 2
	tokenSize = tokenBody + 8 // with its tag
)

// seal signs tokens with the lane's secret, so that nobody can answer for a
// delivery they were not given.
type seal struct{ k0, k1 uint64 }

func newSeal(secret [16]byte) seal {
	return seal{binary.LittleEndian.Uint64(secret[:8]), binary.LittleEndian.Uint64(secret[8:])}
}

// tokenOf is the token of the entry's next delivery, or of the one under way.
func (l *lane) tokenOf(e *broker.Entry) token {
	return token{key: e.Key, generation: e.Generation, attempt: e.Attempt, turn: l.turnOf(e)}
}

// turnOf is in memory in part only: after a restart a worker may know a token
// for one it handed back, and does so again.
func (l *lane) turnOf(e *broker.Entry) uint16 {
	turn := uint16(e.Vanished + e.Incomplete) // both end at protocol.MaxVanished
	if len(l.handedBack) > 0 {
		turn += l.handedBack[e.Key]
	}
	return turn
}

// append appends the token's text, one subject token.
func (s seal) append(to []byte, t token) []byte {
	var b [tokenSize]byte
	binary.BigEndian.PutUint64(b[:], uint64(t.key))
	binary.BigEndian.PutUint32(b[8:], t.generation)
	binary.BigEndian.PutUint32(b[12:], t.attempt)
	binary.BigEndian.PutUint16(b[16:], t.turn)
	binary.BigEndian.PutUint64(b[tokenBody:], siphash.Hash(s.k0, s.k1, b[:tokenBody]))
	return base64.RawURLEncoding.AppendEncode(to, b[:])
}

// open reads a token; false for one this lane did not make.
func (s seal) open(text string) (token, bool) {
	var b [tokenSize]byte
	if len(text) != base64.RawURLEncoding.EncodedLen(tokenSize) {
		return token{}, false
	}
	if _, err := base64.RawURLEncoding.Decode(b[:], []byte(text)); err != nil {
		return token{}, false
	}
	if binary.BigEndian.Uint64(b[tokenBody:]) != siphash.Hash(s.k0, s.k1, b[:tokenBody]) {
		return token{}, false
	}
	return token{
		key:        ledger.Key(binary.BigEndian.Uint64(b[:])),
		generation: binary.BigEndian.Uint32(b[8:]),
		attempt:    binary.BigEndian.Uint32(b[12:]),
		turn:       binary.BigEndian.Uint16(b[16:]),
	}, true
}
