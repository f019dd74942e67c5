// Command waybill runs a mesh and asks things of it.
package main

import (
	"os"

	"github.com/waybill-mq/waybill/cmd/waybill/cli"
)

var version = "dev" // set by the build

func main() { os.Exit(cli.Main(version)) }
