package config

import (
	"encoding/json"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Where what failed on a broker waits for its next try.
const (
	DelayNative = "native" // at the broker
	DelayMesh   = "mesh"
)

// delayKey is of every broker that keeps messages.
func delayKey() Key {
	return Key{
		Name: "delay", Default: DelayNative, Allowed: []string{DelayMesh, DelayNative},
		Doc: "Where what failed waits for its next try: native is at the broker, by its own means, mesh in the mesh, from where it is delivered then.",
	}
}

// IsMeshDelay says whether what failed on an adapter's broker waits in the mesh.
func IsMeshDelay(a protocol.Adapter) bool {
	var c struct {
		Delay string `json:"delay"`
	}
	return json.Unmarshal(a.Config, &c) == nil && c.Delay == DelayMesh
}
