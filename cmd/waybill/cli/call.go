package cli

import (
	"context"
	"time"
)

type callCmd struct {
	Function  string        `arg:"" help:"Function id, such as text::upper."`
	Input     string        `arg:"" optional:"" help:"The function's input; - reads it from stdin. Default empty."`
	Namespace string        `default:"default" help:"Namespace of the function."`
	Timeout   time.Duration `default:"30s" help:"How long to wait for the answer."`
}

func (c *callCmd) Run(a *app) error {
	input, err := payload(a, c.Input)
	if err != nil {
		return err
	}
	cl, err := a.client()
	if err != nil {
		return err
	}
	defer cl.Close(context.WithoutCancel(a.ctx)) //nolint:errcheck // everything is answered
	ctx, cancel := context.WithTimeout(a.ctx, c.Timeout)
	defer cancel()
	output, err := cl.Call(ctx, c.Namespace, c.Function, input)
	if err != nil {
		return err
	}
	return a.show(c.returned(output), func() {
		_, _ = a.stdout.Write(output)
		if isTerminal(a.stdout) {
			a.sayf("")
		}
	})
}

// returned is a function's output as JSON: as text if it is text, else in
// base64.
type returned struct {
	Namespace string  `json:"namespace"`
	Function  string  `json:"function"`
	Output    *string `json:"output,omitempty"`
	Base64    []byte  `json:"output_base64,omitempty"`
}

func (c *callCmd) returned(output []byte) returned {
	r := returned{Namespace: c.Namespace, Function: c.Function}
	r.Output, r.Base64 = textOrBytes(output)
	return r
}
