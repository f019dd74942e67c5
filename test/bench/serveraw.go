package main

import (
	"context"
	"errors"
	"os"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"

	"github.com/waybill-mq/waybill/cmd/waybill/up"
)

type serveRawCommand struct {
	Sync up.Sync `help:"When what is answered is on the disk."`
	Data string  `required:""`
}

// Run serves NATS with JetStream and nothing else, as it comes but for the
// fsyncs.
func (c *serveRawCommand) Run(context.Context) error {
	s, err := natsd.NewServer(&natsd.Options{
		Host: "127.0.0.1", Port: -1, NoSigs: true, JetStream: true, StoreDir: c.Data,
		SyncAlways: c.Sync == 0, SyncInterval: time.Duration(c.Sync),
	})
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		return errors.New("the server takes no connections")
	}
	return obey(s.ClientURL(), os.Stdin, os.Stdout)
}
