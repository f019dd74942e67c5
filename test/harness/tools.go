package harness

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Python is the interpreter of a virtual environment that has these packages,
// each NAME==VERSION. It is made once for a machine, in the user's cache; if that
// cannot be the test fails with the reason.
func Python(t testing.TB, packages ...string) string {
	t.Helper()
	dir := installed(t, "python", packages, func(dir string) error {
		if exec.Command("python3", "-c", "import ensurepip, venv").Run() != nil {
			if err := debian("python3", "python3-venv"); err != nil {
				return err
			}
		}
		return inOrder(
			exec.Command("python3", "-m", "venv", dir),
			exec.Command(filepath.Join(dir, "bin", "python"), slices.Concat([]string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, packages)...),
		)
	})
	return filepath.Join(dir, "bin", "python")
}

// NodeModules is a directory whose node_modules has these packages, each
// NAME@VERSION, and those they need; none of their install scripts runs. It is
// made as Python's is.
func NodeModules(t testing.TB, packages ...string) string {
	t.Helper()
	return installed(t, "node", packages, func(dir string) error {
		if err := commands(map[string]string{"node": "nodejs", "npm": "npm"}); err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		install := exec.Command("npm", slices.Concat([]string{"install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--prefix", dir}, packages)...)
		return inOrder(install)
	})
}

// installed is a directory that make has filled, once for all tests of the
// machine, whichever process comes first.
func installed(t testing.TB, kind string, packages []string, fill func(dir string) error) string {
	t.Helper()
	dir, err := install(kind, packages, fill)
	if err != nil {
		t.Fatalf("this test needs %s with %s, which cannot be had: %v", kind, strings.Join(packages, ", "), err)
	}
	return dir
}

func install(kind string, packages []string, fill func(dir string) error) (dir string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	root := filepath.Join(cache, "waybill-tests")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", err
	}
	lock, err := locked(filepath.Join(root, "lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	sum := sha256.Sum256([]byte(strings.Join(packages, "\n")))
	dir = filepath.Join(root, kind+"-"+hex.EncodeToString(sum[:6]))
	complete := filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err == nil {
		return dir, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := fill(dir); err != nil {
		return "", err
	}
	return dir, os.WriteFile(complete, nil, 0o600)
}

// locked is a file that one process of the machine at a time holds, until it closes
// it.
func locked(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// commands installs the packages of those commands that are not there.
func commands(packageOf map[string]string) error {
	var missing []string
	for command, name := range packageOf {
		if _, err := exec.LookPath(command); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return debian(missing...)
}

// debian installs packages of the system.
func debian(packages ...string) error {
	update := exec.Command("apt-get", "update", "-qq")
	install := exec.Command("apt-get", slices.Concat([]string{"install", "-y", "-qq", "--no-install-recommends"}, packages)...)
	update.Env = environment("DEBIAN_FRONTEND=noninteractive")
	install.Env = update.Env
	return inOrder(update, install)
}

func inOrder(all ...*exec.Cmd) error {
	for _, cmd := range all {
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
		}
	}
	return nil
}

// Program starts a command that runs until the test ends, at the latest.
func Program(t testing.TB, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	return spawn(t, name, cmd, nil)
}

// Promtool is Prometheus' own tool for rules, got as Python is; of its package
// nothing else is used, and nothing runs.
func Promtool(t testing.TB) string {
	t.Helper()
	dir := installed(t, "promtool", []string{"prometheus"}, func(dir string) error {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		update, download := exec.Command("apt-get", "update", "-qq"), exec.Command("apt-get", "download", "-qq", "prometheus")
		download.Dir = dir
		if err := inOrder(update, download); err != nil {
			return err
		}
		packages, err := filepath.Glob(filepath.Join(dir, "*.deb"))
		if err != nil || len(packages) != 1 {
			return fmt.Errorf("%d packages came: %w", len(packages), err)
		}
		return inOrder(exec.Command("dpkg", "-x", packages[0], dir))
	})
	return filepath.Join(dir, "usr", "bin", "promtool")
}
