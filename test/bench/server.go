package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// server is a system's server, in a process of its own: this program again,
// which says where it listens, obeys orders on its standard input and ends with
// it.
type server struct {
	url     string
	cmd     *exec.Cmd
	orders  io.WriteCloser
	answers *bufio.Reader
	dir     string
}

// Orders to a server, one a line; each is answered by a line.
const (
	orderUsage   = "usage"   // answered with its usage
	orderProfile = "profile" // followed by a prefix: begin profiles
	orderEnd     = "end"     // followed by a prefix: write them
)

// startServer starts the system's server on a fresh directory below data.
func startServer(ctx context.Context, s system, data string) (*server, error) {
	dir, err := os.MkdirTemp(data, "waybill-bench-")
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := append(slices.Clone(s.serve), "--data="+dir)
	if s.at != "" {
		args = append(args, "--adapter="+s.adapter, "--at="+s.at)
	}
	srv := &server{dir: dir, cmd: exec.CommandContext(ctx, program, args...)}
	srv.cmd.Stderr = os.Stderr
	if srv.orders, err = srv.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := srv.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	srv.answers = bufio.NewReader(out)
	if err := srv.cmd.Start(); err != nil {
		return nil, err
	}
	if srv.url, err = srv.answers.ReadString('\n'); err != nil {
		srv.stop()
		return nil, fmt.Errorf("the server of %s has not started: %w", s.name, err)
	}
	srv.url = strings.TrimSpace(srv.url)
	return srv, nil
}

// order sends an order and reads its answer; nobody needs no order.
func (s *server) order(words ...string) (string, error) {
	if s == nil {
		return "{}", nil
	}
	if _, err := fmt.Fprintln(s.orders, strings.Join(words, " ")); err != nil {
		return "", err
	}
	answer, err := s.answers.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("the server does not answer: %w", err)
	}
	return strings.TrimSpace(answer), nil
}

func (s *server) usage() (usage, error) {
	var u usage
	answer, err := s.order(orderUsage)
	if err != nil {
		return u, err
	}
	err = json.Unmarshal([]byte(answer), &u)
	return u, err
}

// stop ends the process, at once: nobody needs what it holds.
func (s *server) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

// obey is the server's side: it says that it is ready at url and obeys until
// its input ends.
func obey(url string, orders io.Reader, answers io.Writer) error {
	if _, err := fmt.Fprintln(answers, url); err != nil {
		return err
	}
	var p profiler
	lines := bufio.NewScanner(orders)
	for lines.Scan() {
		answer, err := p.obey(lines.Text())
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(answers, answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (p *profiler) obey(order string) (answer string, err error) {
	switch word, prefix, _ := strings.Cut(order, " "); word {
	case orderUsage:
		b, err := json.Marshal(usageOfThis())
		return string(b), err
	case orderProfile:
		return "begun", p.start(prefix)
	case orderEnd:
		return "written", p.stop(prefix)
	default:
		return "", fmt.Errorf("unknown order %q", order)
	}
}
