package mesh_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/internal/mesh/meshtest"
)

// What is not there yet is tried again; any other error is the caller's at once.
func TestMadeTriesWhatIsNotThereYet(t *testing.T) {
	tries := 0
	made, err := mesh.Made(meshtest.Context(t), func(context.Context) (string, error) {
		tries++
		if tries < 3 {
			return "", nats.ErrNoResponders
		}
		return "made", nil
	})
	if made != "made" || err != nil || tries != 3 {
		t.Errorf("got %q, %v after %d tries", made, err, tries)
	}
	broken := errors.New("broken")
	tries = 0
	if _, err := mesh.Made(meshtest.Context(t), func(context.Context) (string, error) { tries++; return "", broken }); !errors.Is(err, broken) || tries != 1 {
		t.Errorf("got %v after %d tries", err, tries)
	}
	ended, cancel := context.WithCancel(meshtest.Context(t))
	cancel()
	if _, err := mesh.Made(ended, func(context.Context) (string, error) { return "", nats.ErrNoResponders }); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("after the end: %v", err)
	}
}
