package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Services are the mesh's, in the order in which they are started.
var Services = []string{"registry", "retry", "dlq", "router", "gateway"}

// Separate is a mesh whose services are processes of their own, any number of
// each, beside a NATS of its own.
type Separate struct {
	*Mesh

	instances map[string]*Instance // by name
}

// Instance is one service as a process of its own, which has the same name and
// arguments whenever it is started.
type Instance struct {
	*Process
	Name, Service string

	m    *Separate
	args []string
}

// StartSeparate starts a NATS and that many of each service, at least one, and
// returns when all are ready. All ends with the test.
func StartSeparate(t testing.TB, copies map[string]int) *Separate {
	t.Helper()
	return StartSeparateOn(t, t.TempDir(), copies)
}

// StartSeparateOn is StartSeparate on a data directory of the test's choice.
func StartSeparateOn(t testing.TB, data string, copies map[string]int) *Separate {
	t.Helper()
	m := newSeparate(t, data)
	m.startNATS("127.0.0.1:0")
	m.connect()
	for _, service := range Services {
		for i := range max(copies[service], 1) {
			m.Add(service, fmt.Sprintf("%s-%d", service, i+1))
		}
	}
	t.Cleanup(m.show)
	m.HTTP = m.instances["gateway-1"].web()
	m.AwaitReady()
	return m
}

func newSeparate(t testing.TB, data string) *Separate {
	m := &Separate{Mesh: &Mesh{Data: data, t: t}, instances: make(map[string]*Instance)}
	m.copies = m.running
	return m
}

func (m *Separate) startNATS(listen string) {
	m.t.Helper()
	m.process = spawn(m.t, "waybill nats", exec.Command(Binary(m.t), "nats", "--data", m.Data, "--listen", listen), nil)
	m.URL = m.process.Printed(natsURL)[0]
}

// KillNATS ends NATS with SIGKILL.
func (m *Separate) KillNATS() { m.process.Kill() }

// RestartNATS starts NATS again, on its data and its port.
func (m *Separate) RestartNATS() {
	m.t.Helper()
	m.startNATS(strings.TrimPrefix(m.URL, "nats://"))
}

// Add starts an instance and does not wait until it is ready.
func (m *Separate) Add(service, name string, args ...string) *Instance {
	m.t.Helper()
	i := &Instance{Name: name, Service: service, m: m, args: args}
	i.Start()
	m.instances[name] = i
	return i
}

// Instance is the one with that name.
func (m *Separate) Instance(name string) *Instance { return m.instances[name] }

// Instances are all that were started, in order of their names.
func (m *Separate) Instances() []*Instance {
	all := make([]*Instance, 0, len(m.instances))
	for _, name := range slices.Sorted(maps.Keys(m.instances)) {
		all = append(all, m.instances[name])
	}
	return all
}

// Start starts the instance, which has ended or never ran.
func (i *Instance) Start() {
	i.m.t.Helper()
	args := []string{"--nats", i.m.URL, "--name", i.Name}
	if i.Service == "gateway" {
		args = append(args, "--http", "127.0.0.1:0")
	}
	i.Process = spawn(i.m.t, i.Name, exec.Command(ServiceBinary(i.m.t, i.Service), append(args, i.args...)...), nil)
}

// End sends SIGTERM and waits for an orderly end.
func (i *Instance) End() {
	i.m.t.Helper()
	i.Terminate()
	if code := i.Exit(Guard); code != 0 {
		i.m.t.Errorf("%s ended with %d:\n%s", i.Name, code, i.Output())
	}
}

// web is the gateway's address, once it has one.
func (i *Instance) web() string {
	i.m.t.Helper()
	return i.Printed(httpURL)[0]
}

// Pause stops the process where it is until Resume.
func (i *Instance) Pause() { i.signal(syscall.SIGSTOP) }

// Resume lets it go on.
func (i *Instance) Resume() { i.signal(syscall.SIGCONT) }

// Service runs a service's program and does not expect it to become one.
func Service(t testing.TB, service string, args ...string) *Process {
	t.Helper()
	return spawn(t, "waybill-"+service, exec.Command(ServiceBinary(t, service), args...), nil)
}

// gateways are those that run, in order of their names.
func (m *Separate) gateways() (all []*Instance) {
	for _, i := range m.Instances() {
		if i.Service == "gateway" && !i.Ended() {
			all = append(all, i)
		}
	}
	return all
}

// FindGateways makes HTTP that of the first gateway.
func (m *Separate) FindGateways() { m.HTTP = m.gateways()[0].web() }

// NextGateway makes HTTP that of the next gateway.
func (m *Separate) NextGateway() {
	all := m.gateways()
	at := slices.IndexFunc(all, func(i *Instance) bool { return i.web() == m.HTTP })
	m.HTTP = all[(at+1)%len(all)].web()
}

// Listed is what waybill queue ls lists.
func (m *Separate) Listed() (queues []protocol.QueueInfo) {
	m.t.Helper()
	answer := m.Run("queue", "ls", "--json")
	if err := json.Unmarshal([]byte(answer.Stdout), &queues); err != nil || answer.Code != 0 {
		m.t.Fatalf("queue ls: %v, %+v", err, answer)
	}
	return queues
}

// WorkerLists are the different answers that so many questions after the
// workers have: any registry answers.
func (m *Separate) WorkerLists(questions int) map[string]int {
	m.t.Helper()
	lists := make(map[string]int)
	for range questions {
		page := must[protocol.WorkersPage](m.Mesh, protocol.SubjectWorkers, protocol.WorkersRequest{})
		text, err := json.Marshal(page)
		if err != nil {
			m.t.Fatal(err)
		}
		lists[string(text)]++
	}
	return lists
}

// running is how many instances of a service there are.
func (m *Separate) running(service string) (n int) {
	for _, i := range m.instances {
		if i.Service == service && !i.Ended() {
			n++
		}
	}
	return n
}

// answering is how many instances there are of all services.
func (m *Separate) answering() (n int) {
	for _, service := range Services {
		n += m.copies(service)
	}
	return n
}

// AwaitReady waits until every instance that runs is ready, and ledgers are
// spread evenly. It is the more patient with each answer the longer that takes.
func (m *Separate) AwaitReady() {
	m.t.Helper()
	var why string
	stall := softStall
	if !poll(Guard, func() bool {
		why = m.waiting(stall)
		stall = min(stall+stall/5, askTimeout)
		return why == ""
	}) {
		m.t.Fatalf("not ready: %s", why)
	}
}

// waiting says what is not ready, "" when all is.
func (m *Separate) waiting(stall time.Duration) string {
	answers := gather[protocol.Ready](m.Mesh, protocol.SubjectReady, protocol.Empty{}, stall, m.answering())
	ready := make(map[string]bool)
	for _, a := range answers {
		if !a.Ready {
			return a.Instance + ": " + strings.Join(a.Waiting, ", ")
		}
		ready[a.Instance] = true
	}
	for name, i := range m.instances {
		if !ready[name] && !i.Ended() {
			return name + " does not answer"
		}
	}
	return m.uneven(stall)
}

// uneven says which service's ledgers are not spread evenly, or not all open.
func (m *Separate) uneven(stall time.Duration) string {
	held := make(map[string][]float64)
	for _, s := range gather[protocol.Stats](m.Mesh, protocol.SubjectStats, protocol.Empty{}, stall, m.answering()) {
		held[s.Service] = append(held[s.Service], s.Gauges["lanes"]+s.Gauges["ledgers"])
	}
	for service, total := range map[string]float64{"router": 16, "retry": 4, "dlq": 4} {
		sum := 0.0
		for _, n := range held[service] {
			sum += n
		}
		if sum != total || slices.Max(held[service])-slices.Min(held[service]) > 1 {
			return fmt.Sprintf("the ledgers of %s are spread %v", service, held[service])
		}
	}
	return ""
}

// softStall is how long after one answer the next may come, at first, where it is asked
// again.
const softStall = 300 * time.Millisecond

// gather asks every instance once; as many as there are make it complete.
func gather[A any](m *Mesh, subject string, question any, stall time.Duration, copies int) []A {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), askTimeout)
	defer cancel()
	answers, err := mesh.GatherUntil(ctx, m.nc, subject, question, stall, func(answers []A) bool { return len(answers) == copies })
	if err != nil {
		m.t.Logf("%s: %v", subject, err)
		return nil
	}
	return answers
}

// queuesOfAll asks all instances of a service, page by page. A page that
// overlaps another of the same instance counts once.
func (m *Mesh) queuesOfAll(subject string, question protocol.QueuesRequest, copies int) (all []protocol.QueueInfo) {
	m.t.Helper()
	type key struct{ instance, queue string }
	found := make(map[key]protocol.QueueInfo)
	for more := true; more; {
		more = false
		after := ""
		for _, page := range gather[protocol.QueuesPage](m, subject, question, askTimeout, copies) {
			for _, q := range page.Queues {
				found[key{page.Instance, q.Queue}] = q
			}
			if last := len(page.Queues) - 1; page.More && last >= 0 && (!more || page.Queues[last].Queue < after) {
				more, after = true, page.Queues[last].Queue
			}
		}
		question.After = after
	}
	return slices.Collect(maps.Values(found))
}
