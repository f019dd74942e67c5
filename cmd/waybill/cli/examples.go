package cli

import (
	"strings"

	"github.com/alecthomas/kong"
)

// examples are what --help ends with, by command. Tests see that each command
// has one, and that each is a command line.
var examples = map[string]string{
	"up":   "waybill up\nwaybill up --data /var/lib/waybill --listen 127.0.0.1:4222 --http 127.0.0.1:8000\nwaybill up --sync 2m",
	"nats": "waybill nats --data /var/lib/waybill",
	"demo": "waybill demo\nwaybill demo ./src ./docs",

	"pub queue": "waybill pub queue run-1 parse hello\necho hello | waybill pub queue run-1 parse - --header kind=greeting\nwaybill pub queue run-1 parse hello --dedup-id order-7 --delay 5m",
	"pub topic": "waybill pub topic orders.created '{\"order\": 7}'",
	"work":      "waybill work run-1 parse\nwaybill work run-1 parse --exec './parse.sh' --concurrency 4 --max-retries 5 --backoff-ms 500\nwaybill work run-1 parse --count 1 --json",
	"listen":    "waybill listen orders.created",
	"observe":   "waybill observe orders.created --id billing --exec './bill.sh'\nwaybill observe orders.created --group mailers",
	"call":      "waybill call text::upper hello",
	"enqueue":   "waybill enqueue default text::upper '{\"text\": \"a\"}'\nwaybill enqueue turns harness::turn '{\"session_id\": \"s1\"}' --receipt r-1 --namespace app",
	"serve":     "waybill serve text::upper --exec 'tr a-z A-Z'",

	"filter test": "waybill filter test --filter urgent.json --document '{\"input\": {\"priority\": \"low\"}}' --explain",

	"observer ls":   "waybill observer ls\nwaybill observer ls orders.created --orphans",
	"observer show": "waybill observer show orders.created::observer:billing",
	"observer rm":   "waybill observer rm orders.created::observer:billing",

	"webhook add":    "waybill webhook add parser http://127.0.0.1:9000/parse --queue run-1/parse\nwaybill webhook add mail https://mail.example/hook --topic orders.created\nwaybill webhook add bills https://bills.example/hook --topic orders.paid --secret-file bills",
	"webhook ls":     "waybill webhook ls",
	"webhook show":   "waybill webhook show parser",
	"webhook rotate": "waybill webhook rotate parser",
	"webhook rm":     "waybill webhook rm parser",

	"queue ls":        "waybill queue ls\nwaybill queue ls --execution run-1 --watch",
	"queue define":    "waybill queue define mails --concurrency 4 --max-retries 5\nwaybill queue define turns --group-field session_id\nwaybill queue define turns --config turns.json",
	"queue show":      "waybill queue show turns",
	"queue rm":        "waybill queue rm mails\nwaybill queue rm mails --purge",
	"subscription ls": "waybill subscription ls --execution run-1",

	"dlq ls":      "waybill dlq ls\nwaybill dlq ls run-1/parse --limit 10\nwaybill dlq ls orders.created::observer:billing --json",
	"dlq show":    "waybill dlq show 01a22903-c22f-72ef-812a-e20f3ee053c3",
	"dlq redrive": "waybill dlq redrive 01a22903-c22f-72ef-812a-e20f3ee053c3\nwaybill dlq redrive run-1/parse\nwaybill dlq redrive --all",
	"dlq discard": "waybill dlq discard run-1/parse",

	"execution ls":     "waybill execution ls --watch",
	"execution close":  "waybill execution close run-1",
	"execution purge":  "waybill execution purge run-1",
	"execution reopen": "waybill execution reopen run-1",

	"retry ls":     "waybill retry ls\nwaybill retry ls run-1/parse",
	"retry now":    "waybill retry now run-1/parse\nwaybill retry now --execution run-1",
	"retry cancel": "waybill retry cancel 01a22903-c22f-72ef-812a-e20f3ee053c3",

	"config check":    "waybill config check waybill.yaml\nwaybill config check --part routes.yaml",
	"config show":     "waybill config show\nwaybill config show --set > waybill.yaml\nwaybill config show --data waybill-data",
	"config diff":     "waybill config diff waybill.yaml",
	"config apply":    "waybill config apply waybill.yaml\necho 'subscriber_retention_ms: 60000' | waybill config apply -",
	"config history":  "waybill config history",
	"config rollback": "waybill config rollback 57",
	"config schema":   "waybill config schema > waybill.schema.json",

	"stats":               "waybill stats\nwaybill stats --watch --interval 1s",
	"reconcile":           "waybill reconcile",
	"why":                 "waybill why 01a22903-c22f-72ef-812a-e20f3ee053c3\nwaybill why 01a22903-c22f-72ef-812a-e20f3ee053c3 --json",
	"diagnose":            "waybill diagnose\nwaybill diagnose --json",
	"broker ls":           "waybill broker ls\nwaybill broker ls --json",
	"broker drain":        "waybill broker drain orders",
	"broker retire":       "waybill broker retire orders\nwaybill broker retire orders --force",
	"broker capabilities": "waybill broker capabilities\nwaybill broker capabilities builtin --json",

	"bench":      "waybill bench\nwaybill bench --time 10s --size 1024",
	"completion": "source <(waybill completion bash)\nwaybill completion fish > ~/.config/fish/completions/waybill.fish",
	"version":    "waybill version --json",
}

// explain adds the examples to the commands' help.
func explain(parser *kong.Kong) {
	for _, command := range parser.Model.Leaves(true) {
		if text, ok := examples[pathOf(command)]; ok {
			command.Detail = strings.TrimSpace(command.Detail + "\n\nExamples:\n\n  " + strings.ReplaceAll(text, "\n", "\n  "))
		}
	}
}

// pathOf is a command as it is typed, without its arguments: queue ls.
func pathOf(command *kong.Node) string {
	if command.Parent == nil || command.Parent.Type == kong.ApplicationNode {
		return command.Name
	}
	return pathOf(command.Parent) + " " + command.Name
}
