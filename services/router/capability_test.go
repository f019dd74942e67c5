package router_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-mq/waybill/services/router"
)

var write = flag.Bool("write", false, "write the table of capabilities into the guide")

// TestCapabilitiesInTheGuide: the guide's table is what the adapters say.
func TestCapabilitiesInTheGuide(t *testing.T) {
	const begin, end = "<!-- capabilities: written by go test ./services/router -run TestCapabilitiesInTheGuide -write -->\n", "<!-- end of capabilities -->"
	path := filepath.Join("..", "..", "docs", "guides", "brokers.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, opened := strings.Cut(string(text), begin)
	has, after, closed := strings.Cut(rest, end)
	if !opened || !closed {
		t.Fatalf("%s has no place for the table", path)
	}
	wants := capabilityTable()
	if has == wants {
		return
	}
	if !*write {
		t.Fatalf("%s does not say what the adapters do: run this test with -write. It has\n%s\nand not\n%s", path, has, wants)
	}
	if err := os.WriteFile(path, []byte(before+begin+wants+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

// capabilityTable has a row for each capability and a column for each broker.
func capabilityTable() string {
	known := router.KnownBrokers()
	rows := [][]string{{"Capability"}, {"---"}}
	for _, b := range known {
		rows[0], rows[1] = append(rows[0], b.Name), append(rows[1], "---")
	}
	for i, c := range known[0].Capabilities {
		row := []string{"`" + c.Name + "`"}
		for _, b := range known {
			row = append(row, b.Capabilities[i].Value)
		}
		rows = append(rows, row)
	}
	var table strings.Builder
	for _, row := range rows {
		table.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	return table.String()
}
