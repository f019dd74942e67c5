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
	if _, err := a.stdout.Write(output); err != nil {
		return err
	}
	if isTerminal(a.stdout) {
		a.sayf("")
	}
	return nil
}
