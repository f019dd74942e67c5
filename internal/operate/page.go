// Package operate is what every door for operators needs: what the services
// know, added up, and the ways to name what is operated on.
package operate

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// MaxPage is the most that is on a page, and the default.
const MaxPage = 1000

// part is what one instance has on a page, in order of name.
type part[T any] struct {
	items []T
	more  bool
	share protocol.Share
}

// source asks all instances of a service for their parts of a page.
type source[T any] struct {
	service string
	ask     func(ctx context.Context) ([]part[T], error)
}

// stall is how long instances of a version are waited for that does not say what they
// answer for.
const stall = 250 * time.Millisecond

// gathered is a source whose instances answer subject with P.
func gathered[P, T any](nc *nats.Conn, service, subject string, q any, partOf func(P) part[T]) source[T] {
	return source[T]{service, func(ctx context.Context) ([]part[T], error) {
		var parts []part[T]
		_, err := mesh.GatherWhile(ctx, nc, subject, q, func(pages []P) time.Duration {
			parts = append(parts, partOf(pages[len(pages)-1]))
			switch missing, known := missingOf(parts); {
			case !known:
				return stall
			case missing > 0:
				return countStall
			default:
				return 0
			}
		})
		return parts, err
	}}
}

// missingOf is how many of a service's ledgers nobody has answered for, if all who have say
// what they answer for.
func missingOf[T any](parts []part[T]) (missing int, known bool) {
	for _, p := range parts {
		if p.share.Total == 0 {
			return 0, false
		}
		missing = max(missing, p.share.Total)
	}
	for _, p := range parts {
		missing -= p.share.Ledgers
	}
	return missing, true
}

// Missing says which parts of the services nobody has answered for in time: what these
// have is not listed, and not counted.
type Missing []string

// Err is UNAVAILABLE if any is missing.
func (m Missing) Err() error {
	if len(m) == 0 {
		return nil
	}
	return protocol.Errorf(protocol.CodeUnavailable, "%s: try again; `waybill stats` shows who answers", m[0])
}

// with adds what is not there yet.
func (m Missing) with(more Missing) Missing {
	for _, text := range more {
		if !slices.Contains(m, text) {
			m = append(m, text)
		}
	}
	return m
}

// askAll asks the services at once, since each answer takes a while to be
// complete. A service of which nobody answers is UNAVAILABLE.
func askAll[T any](ctx context.Context, sources []source[T]) ([]part[T], Missing, error) {
	parts, errs := make([][]part[T], len(sources)), make([]error, len(sources))
	var asking sync.WaitGroup
	for i, s := range sources {
		asking.Go(func() {
			parts[i], errs[i] = s.ask(ctx)
			if errs[i] == nil && len(parts[i]) == 0 || protocol.CodeOf(errs[i]) == protocol.CodeUnavailable {
				errs[i] = protocol.Errorf(protocol.CodeUnavailable, "the %s service does not answer; `waybill stats` shows which do", s.service)
			}
		})
	}
	asking.Wait()
	missing := make(Missing, 0, len(sources))
	for i, s := range sources {
		missing = append(missing, missingFrom(s.service, parts[i])...)
	}
	return slices.Concat(parts...), missing, cmp.Or(errs...)
}

// merged adds up the parts of a page in order of name, at most limit, and no
// further than every part reaches.
func merged[T any](parts []part[T], name func(*T) string, add func(sum, one *T), limit int) (items []T, more bool) {
	reach := ""
	for _, p := range parts {
		if !p.more || len(p.items) == 0 {
			continue
		}
		if last := name(&p.items[len(p.items)-1]); reach == "" || last < reach {
			reach = last
		}
	}
	sums := map[string]*T{}
	for _, p := range parts {
		for i := range p.items {
			one := p.items[i]
			switch key := name(&one); {
			case reach != "" && key > reach:
			case sums[key] == nil:
				sums[key] = &one
			default:
				add(sums[key], &one)
			}
		}
	}
	items = make([]T, 0, len(sums))
	for _, key := range slices.Sorted(maps.Keys(sums)) {
		items = append(items, *sums[key])
	}
	if len(items) > limit {
		return items[:limit], true
	}
	return items, reach != ""
}

// pageLimit is how much is on a page that asks for n.
func pageLimit(n int) int {
	if n <= 0 {
		return MaxPage
	}
	return min(n, MaxPage)
}
