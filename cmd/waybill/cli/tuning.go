package cli

import (
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// tuning is what an observer has of its topic, and when.
type tuning struct {
	Filter            string        `help:"Which messages are wanted; the others are acknowledged unseen. A file, JSON, or - for stdin. Default all." placeholder:"F"`
	Type              string        `enum:"concurrent,fifo" default:"concurrent" help:"fifo: one after the other, whatever groups publishers name."`
	GroupField        string        `help:"Handle in order, one at a time, what has the same value in this field of its payload, a JSON object." placeholder:"FIELD"`
	BackoffType       string        `enum:"exponential,linear,fixed" default:"exponential" help:"How the delay between tries grows from --backoff-ms on."`
	Delay             time.Duration `help:"Deliver each message this long after its publish, such as 5s." placeholder:"TIME"`
	VisibilityTimeout time.Duration `help:"A delivery that is not answered for this long has failed, if that is shorter than --timeout-ms." placeholder:"TIME"`
}

func (c *tuning) options(a *app) ([]client.WorkOption, error) {
	opts := []client.WorkOption{client.FirstDelay(c.Delay)}
	if c.Filter != "" {
		f, err := jsonArg(a, "--filter", c.Filter, protocol.CodeInvalidFilter)
		if err != nil {
			return nil, err
		}
		opts = append(opts, client.Filter(string(f)))
	}
	if c.Type == string(protocol.TypeFIFO) {
		opts = append(opts, client.Serial())
	}
	if c.GroupField != "" {
		opts = append(opts, client.GroupField(c.GroupField))
	}
	if how := protocol.BackoffType(c.BackoffType); how != protocol.BackoffExponential {
		opts = append(opts, client.BackoffGrows(how))
	}
	if c.VisibilityTimeout != 0 {
		opts = append(opts, client.Visibility(c.VisibilityTimeout))
	}
	return opts, nil
}
