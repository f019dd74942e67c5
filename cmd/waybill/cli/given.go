package cli

import (
	"log/slog"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// checkGiven refuses flags that were given nothing, as --topic "$UNSET" is, or a
// number or time below 0: no flag takes either, and what was meant to be narrowed
// down by one would be done to everything.
func checkGiven(command *kong.Context) error {
	for _, p := range command.Path {
		if p.Flag == nil {
			continue
		}
		switch v := reflect.Indirect(p.Flag.Target); {
		case v.Kind() == reflect.String && (v.Len() == 0 || p.Flag.Tag.Type != "" && nothingAs(p.Flag.Name, command.Args)):
			return protocol.Errorf(protocol.CodeInvalidArgs, "--%s is empty: give it a value, or leave it out", p.Flag.Name)
		case v.CanInt() && v.Int() < 0 && v.Type() != reflect.TypeFor[slog.Level](): // a level has a name
			return protocol.Errorf(protocol.CodeInvalidArgs, "--%s is %v: it may not be negative", p.Flag.Name, v.Interface())
		}
	}
	return nil
}

// nothingAs says whether the arguments have the flag with nothing as its value,
// which as a path has become the working directory.
func nothingAs(flag string, args []string) bool {
	at := slices.IndexFunc(args, func(arg string) bool { return arg == "--"+flag || arg == "--"+flag+"=" })
	return at >= 0 && (args[at] != "--"+flag || at+1 < len(args) && args[at+1] == "")
}

// span is so many milliseconds, or the longest time there is: what takes it
// refuses that.
func span(ms int64) time.Duration {
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}
