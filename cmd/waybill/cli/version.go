package cli

import "github.com/waybill-mq/waybill/pkg/protocol"

type versionCmd struct{}

func (versionCmd) Run(a *app) error {
	value := struct {
		Version string `json:"version"`
		Wire    string `json:"wire"`
	}{a.version, protocol.Version}
	return a.show(value, func() { a.sayf("waybill %s, wire %s", value.Version, value.Wire) })
}
