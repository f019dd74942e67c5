package daemon

import (
	"context"
	"fmt"
	"strings"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// ask asks the running instance of this name, or any of the service if there is
// no name, whether it is ready: UNAVAILABLE, with what it waits for, if not.
func ask(ctx context.Context, service string, f *Flags) error {
	if err := f.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.Wait)
	defer cancel()
	o := f.Connect()
	o.Name = "waybill-" + service + "-check"
	nc, err := mesh.Connect(ctx, o)
	if err != nil {
		return err
	}
	defer nc.Close()
	answers, err := mesh.Gather[protocol.Ready](ctx, nc, protocol.SubjectReady, protocol.Empty{}, 0)
	waiting := ""
	for _, a := range answers {
		if a.Service != service || f.Name != "" && a.Instance != f.Name {
			continue
		}
		if a.Ready {
			return nil
		}
		waiting = fmt.Sprintf("; %s waits for: %s", a.Instance, strings.Join(a.Waiting, ", "))
	}
	if waiting == "" && err != nil {
		return err
	}
	return protocol.Errorf(protocol.CodeUnavailable, "no %s is ready%s", strings.TrimSpace(service+" "+f.Name), waiting)
}
