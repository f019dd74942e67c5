package cli

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

type serveCmd struct {
	Function    string        `arg:"" help:"Function id, such as text::upper."`
	Exec        string        `help:"Run this with sh -c for each call and job: input on stdin, output from stdout; exit 0 succeeds, 65 rejects a job for good, anything else fails with stderr as the error. Without it inputs are printed, and are the output." placeholder:"COMMAND"`
	Namespace   string        `default:"default" help:"Namespace of the function, and of this worker." placeholder:"NAMESPACE"`
	Concurrency int           `default:"10" help:"Calls at once, and jobs at once of each queue."`
	Name        string        `help:"Name of this worker in listings. Default host/waybill." placeholder:"NAME"`
	Drain       time.Duration `default:"25s" help:"How long calls and jobs under way may go on at the end; other jobs are handed back unspent."`
}

func (c *serveCmd) Run(a *app) error {
	opts := []client.Option{client.DrainWindow(c.Drain), client.Namespace(c.Namespace)}
	if c.Name != "" {
		opts = append(opts, client.Name(c.Name))
	}
	cl, err := a.client(opts...)
	if err != nil {
		return err
	}
	if _, err := cl.Handle(a.ctx, c.Namespace, c.Function, c.handler(a), client.Concurrency(c.Concurrency)); err != nil {
		return errors.Join(err, cl.Close(a.ctx))
	}
	a.hintf("serving %s of namespace %s; Ctrl-C ends it", c.Function, c.Namespace)
	<-a.ctx.Done()
	return cl.Close(hurried(a.ctx))
}

func (c *serveCmd) handler(a *app) client.FunctionHandler {
	if c.Exec == "" {
		var mu sync.Mutex
		return func(_ context.Context, input []byte) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			_, err := a.stdout.Write(append(bytes.TrimSuffix(input, []byte("\n")), '\n'))
			return input, err
		}
	}
	child := &child{command: c.Exec, stderr: a.stderr}
	return func(ctx context.Context, input []byte) ([]byte, error) {
		env := []string{"WAYBILL_FUNCTION=" + c.Function, "WAYBILL_NAMESPACE=" + c.Namespace}
		if job := client.JobOf(ctx); job != nil {
			env = append(append(env, "WAYBILL_RECEIPT="+job.Header(protocol.HeaderReceipt)), environment(job)...)
		}
		var output bytes.Buffer
		err := child.run(ctx, input, env, &output)
		return output.Bytes(), err
	}
}
