package mesh_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/internal/mesh"
)

func TestCleanupsRunLastInFirstOutOnce(t *testing.T) {
	var l mesh.Lifecycle
	var order []string
	broken := errors.New("broken")
	add := func(name string, err error) {
		l.Add(name, func(context.Context) error {
			order = append(order, name)
			return err
		})
	}
	add("first", nil)
	add("second", broken)
	add("third", nil)
	for range 2 {
		err := l.Stop(t.Context())
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "second") {
			t.Errorf("got %v, want second's error by its name", err)
		}
	}
	if got := strings.Join(order, " "); got != "third second first" {
		t.Errorf("order: %s", got)
	}
}
