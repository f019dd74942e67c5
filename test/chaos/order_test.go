package chaos_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/test/harness"
)

const (
	orderGroups = 5
	orderEach   = 60
)

// witnessed is the handler of an ordered queue, in this process and in worker
// processes alike. Each writes to the end of one file how it begins and how it
// ends, so that the file's lines are in the order things happened.
var witnessed = harness.RegisterHandler("witnessed", witness)

func witness(ctx context.Context, d *client.Delivery) error {
	path, number, _ := strings.Cut(string(d.Data), "|")
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	run := fmt.Sprintf("%d-%d", os.Getpid(), rand.Uint64())
	if err := testify(path, "begin", run, d.Group, number); err != nil {
		return err
	}
	pause(ctx, time.Duration(rand.IntN(30))*time.Millisecond)
	what := "done"
	if (n+d.Attempt)%3 == 0 {
		what, err = "failed", errToldTo
	}
	if ctx.Err() != nil {
		what, err = "cancelled", ctx.Err()
	}
	if told := testify(path, what, run, d.Group, number); told != nil {
		return told
	}
	return err
}

// testify appends a line in one write.
func testify(path string, words ...string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(strings.Join(words, " ") + "\n")
	return err
}

// kill -9 of the mesh and of workers while the messages of ordered groups fail
// and are tried again: each group is handled in the order of publishing, none in
// two hands at once, and none of it is left in the end.
func TestKilledMeshAndWorkersKeepOrder(t *testing.T) {
	t.Parallel()
	kills := 6
	if harness.Soak(t) > 0 {
		kills = 60
	}
	o := &ordered{t: t, mesh: harness.Start(t), each: orderEach * max(kills/6, 1)}
	o.run(func() {
		for i := range kills {
			o.progress(1 + rand.IntN(30))
			if i%2 == 1 {
				o.mesh.Kill()
			}
			victim := o.killOne()
			if i%2 == 1 {
				o.mesh.Restart()
			}
			o.crew[victim] = o.spawn()
		}
	})
}

// The same with three routers as processes of their own, of which one after the
// other is killed, or stands still until another has its lanes and then goes on
// with what it knew.
func TestKilledRoutersKeepOrder(t *testing.T) {
	t.Parallel()
	kills := 4
	if harness.Soak(t) > 0 {
		kills = 60
	}
	m := harness.StartSeparate(t, map[string]int{"router": 3})
	o := &ordered{t: t, mesh: m.Mesh, each: orderEach * max(kills/6, 1)}
	o.run(func() {
		for i := range kills {
			o.progress(1 + rand.IntN(30))
			router := m.Instance("router-" + strconv.Itoa(1+rand.IntN(3)))
			if i%3 == 2 {
				router.Pause()
				for lane := range lanes { // also those it had
					publishUntilStored(t, o.client, client.Queue("probe", routeIn(lane)), nil)
				}
				o.progress(1 + rand.IntN(30))
				router.Resume()
				continue
			}
			router.Kill()
			if i%2 == 1 {
				o.crew[o.killOne()] = o.spawn()
			}
			router.Start()
			if i%4 == 3 {
				m.AwaitReady()
			}
		}
	})
}

// ordered is a run of such a test.
type ordered struct {
	t      *testing.T
	mesh   *harness.Mesh
	each   int // messages of a group
	client *client.Client
	path   string
	crew   []*harness.Worker
}

// run publishes and handles everything while disturb does what it will, and
// reads the witnesses then.
func (o *ordered) run(disturb func()) {
	o.t.Helper()
	o.path = filepath.Join(o.t.TempDir(), "witnesses")
	o.client = o.mesh.Connect()
	if _, err := o.client.Work(o.t.Context(), "ordered", "r", witness,
		client.FIFO(), client.Concurrency(3), client.MaxRetries(50), client.Backoff(10*time.Millisecond)); err != nil {
		o.t.Fatal(err)
	}
	o.crew = []*harness.Worker{o.spawn(), o.spawn()}
	ctx, stop := context.WithCancel(o.t.Context())
	var publishing sync.WaitGroup
	defer func() { stop(); publishing.Wait() }()
	for g := range orderGroups {
		publishing.Go(func() { o.publish(ctx, strconv.Itoa(g)) })
	}
	disturb()
	publishing.Wait()
	o.mesh.AwaitRest("ordered", harness.Guard)
	o.check()
}

// killOne kills one of the crew and says which.
func (o *ordered) killOne() int {
	o.t.Helper()
	victim := rand.IntN(len(o.crew))
	o.kill(o.crew[victim])
	return victim
}

func (o *ordered) spawn() *harness.Worker {
	o.t.Helper()
	w := harness.StartWorker(o.t, harness.WorkerSpec{
		URL: o.mesh.URL, Execution: "ordered", Route: "r", Handler: witnessed,
		FIFO: true, Concurrency: 3, MaxRetries: 50, Backoff: 10 * time.Millisecond,
	})
	var reading sync.WaitGroup
	reading.Go(func() {
		for range w.Events {
			continue // the file says it all
		}
	})
	o.t.Cleanup(func() { w.Kill(); reading.Wait() })
	return w
}

// kill ends a worker, and testifies that what it ran is over.
func (o *ordered) kill(w *harness.Worker) {
	o.t.Helper()
	w.Kill()
	if err := testify(o.path, "killed", strconv.Itoa(w.PID())); err != nil {
		o.t.Fatal(err)
	}
}

// publish publishes a group's messages one after the other, each until it is
// answered.
func (o *ordered) publish(ctx context.Context, group string) {
	for n := range o.each {
		number := strconv.Itoa(n)
		for ctx.Err() == nil {
			_, err := o.client.Publish(ctx, client.Queue("ordered", "r"), []byte(o.path+"|"+number),
				client.InGroup(group), client.DedupID(group+"-"+number))
			if err == nil {
				break
			}
			if code := protocol.CodeOf(err); ctx.Err() == nil && code != protocol.CodeUnavailable && code != protocol.CodeTimeout {
				o.t.Errorf("a publish was refused: %v", err)
				return
			}
			pause(ctx, patience)
		}
		pause(ctx, time.Duration(rand.IntN(20))*time.Millisecond)
	}
}

// lines are what was testified so far, whole lines only.
func (o *ordered) lines() []string {
	o.t.Helper()
	data, err := os.ReadFile(o.path)
	if err != nil && !os.IsNotExist(err) {
		o.t.Fatal(err)
	}
	return strings.Split(string(data[:bytes.LastIndexByte(data, '\n')+1]), "\n")
}

// progress returns when n more deliveries have ended or nothing is left to be
// delivered.
func (o *ordered) progress(n int) {
	o.t.Helper()
	target := len(o.lines()) + 2*n
	harness.Await(o.t, "deliveries", func() bool {
		lines := o.lines()
		return len(lines) >= target || strings.Count(strings.Join(lines, "\n"), "done ") >= orderGroups*o.each
	})
}

// check reads the witnesses.
func (o *ordered) check() {
	o.t.Helper()
	running := map[string]string{} // by group: the run
	last, done := map[string]int{}, map[string]bool{}
	for _, line := range o.lines() {
		words := strings.Fields(line)
		switch {
		case len(words) == 2: // killed
			for group, run := range running {
				if strings.HasPrefix(run, words[1]+"-") {
					delete(running, group)
				}
			}
		case len(words) == 4 && words[0] == "begin":
			group := words[2]
			n, _ := strconv.Atoi(words[3])
			if run := running[group]; run != "" {
				o.t.Errorf("%s: group %s is in the hands of %s too", line, group, run)
			}
			if next := last[group]; n != next && (n != next+1 || !done[group]) {
				o.t.Errorf("%s: follows %d, done %v", line, next, done[group])
			}
			if n != last[group] {
				done[group] = false
			}
			running[group], last[group] = words[1], n
		case len(words) == 4:
			delete(running, words[2])
			done[words[2]] = done[words[2]] || words[0] == "done"
		}
	}
	for g := range orderGroups {
		group := strconv.Itoa(g)
		if want := o.each - 1; last[group] != want || !done[group] {
			o.t.Errorf("group %s ended at %d of %d", group, last[group], want)
		}
	}
}
