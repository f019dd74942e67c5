package cli

import (
	"bytes"
	"fmt"
	"time"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// watching shows a listing again and again.
type watching struct {
	Watch    bool          `short:"w" help:"Show it again and again, until Ctrl-C."`
	Interval time.Duration `default:"2s" help:"With --watch, how often." placeholder:"TIME"`
}

const (
	clearScreen   = "\x1b[H\x1b[2J"
	leastInterval = 100 * time.Millisecond
)

// run shows what list says, once or until Ctrl-C. On a terminal each takes the
// place of the one before. A mesh that is away for a moment is waited for, except
// at first.
func (w *watching) run(a *app, list func(a *app) error) error {
	if !w.Watch {
		return list(a)
	}
	if w.Interval < leastInterval {
		return protocol.Errorf(protocol.CodeInvalidArgs, "--interval is %v: it is at least %v", w.Interval, leastInterval)
	}
	tick := time.NewTicker(w.Interval)
	defer tick.Stop()
	for first := true; ; first = false {
		err := w.once(a, list)
		if a.ctx.Err() != nil {
			return nil
		}
		if err != nil && (first || !passing(err)) {
			return err
		}
		select {
		case <-tick.C:
		case <-a.ctx.Done():
			return nil
		}
	}
}

func passing(err error) bool {
	code := protocol.CodeOf(err)
	return code == protocol.CodeUnavailable || code == protocol.CodeTimeout
}

// once shows one listing whole, so that a terminal does not flicker.
func (w *watching) once(a *app, list func(a *app) error) error {
	var out, beside bytes.Buffer
	quiet := *a
	quiet.stdout, quiet.stderr = &out, &beside // hints said once a moment are noise
	err := list(&quiet)
	text := out.Bytes()
	if !a.flags.JSON {
		head := "every " + w.Interval.String() + ", at " + time.Now().Format(time.TimeOnly)
		if err != nil {
			head += ": " + err.Error()
		}
		text = append([]byte(head+"\n\n"), text...)
		if isTerminal(a.stdout) {
			text = append([]byte(clearScreen), text...)
		} else {
			text = append(text, '\n')
		}
	}
	if err != nil && a.flags.JSON {
		return err
	}
	if _, lost := a.stdout.Write(text); lost != nil {
		return fmt.Errorf("the listing cannot be shown: %w", lost)
	}
	return err
}
