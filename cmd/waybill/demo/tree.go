package demo

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// DefaultTrees are two directories of the Go toolchain's own sources. The
// second has files that do not parse, for the compiler's tests.
func DefaultTrees(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeInvalidArgs, "the Go toolchain was not found (%v): name two directories with Go sources", err)
	}
	src := filepath.Join(strings.TrimSpace(string(out)), "src")
	return []string{filepath.Join(src, "go"), filepath.Join(src, "internal", "types")}, nil
}

// goFiles calls visit for each Go source file below dir.
func goFiles(dir string, visit func(path string) error) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || filepath.Ext(path) != ".go" {
			return err
		}
		return visit(path)
	})
}

// summary is what is stored of a source file.
type summary struct {
	Path         string `json:"path"`
	Package      string `json:"package"`
	Declarations int    `json:"declarations"`
	Functions    int    `json:"functions"`
}

// parse reads a source file; the error is of its syntax, or of reading it.
func parse(path string) (*summary, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s := &summary{Path: path, Package: file.Name.Name, Declarations: len(file.Decls)}
	for _, d := range file.Decls {
		if _, ok := d.(*ast.FuncDecl); ok {
			s.Functions++
		}
	}
	return s, nil
}

// The store fails now and then: one file in storeTrouble fails its first
// attempt, one in storeBroken all of them until an operator redrives it. Which
// ones depends on the end of the path alone, so that it can be foretold.
const (
	storeTrouble = 7
	storeBroken  = 101
)

// storeFails is how many attempts at storing the file fail, of those allowed.
func storeFails(path string) int {
	h := fnv.New32a()
	h.Write([]byte(filepath.Base(filepath.Dir(path)) + "/" + filepath.Base(path)))
	switch n := h.Sum32(); {
	case n%storeBroken == 0:
		return protocol.DefaultMaxRetries
	case n%storeTrouble == 0:
		return 1
	default:
		return 0
	}
}

// Totals are what became of an execution's messages.
type Totals struct {
	Published    uint64 `json:"published"`
	Acknowledged uint64 `json:"acknowledged"`
	Retried      uint64 `json:"retried"`
	DeadLettered uint64 `json:"dead_lettered"`
	Files        int    `json:"files"`     // stored
	Functions    int    `json:"functions"` // in them
}

// walk foretells the totals of a tree by going through it directly, without the
// mesh.
func walk(dir string) (Totals, error) {
	t := Totals{Published: 1, Acknowledged: 1} // the directory itself
	err := goFiles(dir, func(path string) error {
		t.Published++
		s, err := parse(path)
		if err != nil {
			t.DeadLettered++ // rejected
			return nil       //nolint:nilerr // that it does not parse is the result
		}
		t.Acknowledged++
		t.Published++
		switch fails := storeFails(path); {
		case fails >= protocol.DefaultMaxRetries:
			t.Retried += uint64(fails - 1)
			t.DeadLettered++
			return nil
		default:
			t.Retried += uint64(fails)
			t.Acknowledged++
			t.Files++
			t.Functions += s.Functions
		}
		return nil
	})
	return t, err
}
