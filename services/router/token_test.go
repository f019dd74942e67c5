package router

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/waybill-mq/waybill/internal/ledger"
)

func TestTokenRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var secret [16]byte
		copy(secret[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "secret"))
		want := token{
			key:        ledger.Key(rapid.Uint64().Draw(t, "key")),
			generation: rapid.Uint32().Draw(t, "generation"),
			attempt:    rapid.Uint32().Draw(t, "attempt"),
			turn:       rapid.Uint16().Draw(t, "turn"),
		}
		text := string(newSeal(secret).append(nil, want))
		got, ok := newSeal(secret).open(text)
		if !ok || got != want {
			t.Fatalf("%v became %v (%v)", want, got, ok)
		}
		secret[rapid.IntRange(0, 15).Draw(t, "byte")] ^= 1
		if _, ok := newSeal(secret).open(text); ok {
			t.Fatal("another lane takes the token for its own")
		}
	})
}

func FuzzTokenOpen(f *testing.F) {
	s := newSeal([16]byte{1, 2, 3})
	f.Add(string(s.append(nil, token{key: 1, attempt: 1})))
	f.Add("")
	f.Add("AAAA.AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		tok, ok := s.open(text)
		if ok && string(s.append(nil, tok)) != text {
			t.Fatalf("%q is taken for %v, whose token is another", text, tok)
		}
	})
}
