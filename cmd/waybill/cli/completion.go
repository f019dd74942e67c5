package cli

import (
	"fmt"
	"os"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Shells ask the program itself for what can follow: they run it with the line
// so far in COMP_LINE.
var completions = map[string]string{
	"bash": "complete -o default -o bashdefault -C %[1]q waybill\n",
	"zsh": `autoload -U +X bashcompinit && bashcompinit
complete -o default -o bashdefault -C %[1]q waybill
`,
	"fish": `function __complete_waybill
    set -lx COMP_LINE (commandline -cp)
    test -z (commandline -ct)
    and set COMP_LINE "$COMP_LINE "
    %[1]q
end
complete -f -c waybill -a "(__complete_waybill)"
`,
}

func (c *completionCmd) Run(a *app) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("the path of this program is not known: %w", err)
	}
	_, err = fmt.Fprintf(a.stdout, completions[c.Shell], program)
	return err
}
