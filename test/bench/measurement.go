package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// measurement is one scenario on one system, once.
type measurement struct {
	settings settings
	broker   broker
	server   *server // nil: the system needs none
	beside   *beside // nil: it is on no broker
	profiles string  // prefix of profiles; "" for none
	cost     cost
}

// cost is what the messages of the timed part have cost.
type cost struct {
	Messages int   `json:"messages"`
	Client   usage `json:"client"` // producer and worker: this process
	Server   usage `json:"server"`
	// BrokerCPU is that of the broker that both a raw client and the mesh use.
	BrokerCPU time.Duration `json:"broker_cpu_ns"`
}

// measure starts a server for one measurement.
func measure(ctx context.Context, sc *scenario, sys system, o settings, data, profiles string) (values []float64, spent cost, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.GiveUp, fmt.Errorf("not done within %v", o.GiveUp))
	defer cancel()
	untrace, err := traceShare(ctx, sc.traced)
	if err != nil {
		return nil, spent, err
	}
	defer func() { err = errors.Join(err, untrace()) }()
	m := &measurement{settings: o, beside: sys.beside}
	url := sys.at
	if sys.serve != nil {
		if m.server, err = startServer(ctx, sys, data); err != nil {
			return nil, spent, err
		}
		defer m.server.stop()
		url = m.server.url
	}
	if m.broker, err = sys.connect(ctx, url); err != nil {
		return nil, spent, err
	}
	if profiles != "" {
		m.profiles = filepath.Join(profiles, sc.name+"-"+sys.name)
	}
	values, err = sc.run(ctx, m)
	return values, m.cost, errors.Join(err, m.broker.close(ctx))
}

// timed runs what the scenario is about, which returns how many messages it
// was about; it is measured, and profiled if that is wanted.
func (m *measurement) timed(f func() (messages int, err error)) (time.Duration, error) {
	stop, err := m.profile()
	if err != nil {
		return 0, err
	}
	serverBefore, err := m.server.usage()
	if err != nil {
		return 0, err
	}
	brokerBefore, err := m.beside.used()
	if err != nil {
		return 0, err
	}
	before, start := usageOfThis(), time.Now()
	n, err := f()
	took, after := time.Since(start), usageOfThis()
	if err != nil {
		return 0, err
	}
	serverAfter, err := m.server.usage()
	brokerAfter, brokerErr := m.beside.used()
	m.cost = cost{Messages: n, Client: after.since(before), Server: serverAfter.since(serverBefore), BrokerCPU: brokerAfter - brokerBefore}
	return took, errors.Join(err, brokerErr, stop())
}

// profile begins profiles of both processes.
func (m *measurement) profile() (stop func() error, err error) {
	if m.profiles == "" {
		return func() error { return nil }, nil
	}
	client, server := m.profiles+"-client", m.profiles+"-server"
	var p profiler
	if err := p.start(client); err != nil {
		return nil, err
	}
	if _, err := m.server.order(orderProfile, server); err != nil {
		return nil, err
	}
	return func() error {
		_, err := m.server.order(orderEnd, server)
		return errors.Join(err, p.stop(client))
	}, nil
}
