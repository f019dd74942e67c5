// Package deploy tests what deploy/compose says, as far as that goes without
// Docker.
package deploy

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"go.uber.org/goleak"

	"github.com/waybill-mq/waybill/internal/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dir = "../../deploy/compose"

// variant is a compose file with a profile.
type variant struct{ file, profile string }

var (
	builtin  = variant{"compose.yaml", ""}
	rabbitMQ = variant{"compose.yaml", "rabbitmq"}
	artemis  = variant{"compose.yaml", "artemis"}
	redis    = variant{"compose.yaml", "redis"}
	services = variant{"services.yaml", ""}
	variants = []variant{builtin, rabbitMQ, artemis, redis, services}
)

// load reads the file as Docker does: against the schema, with these variables.
func (v variant) load(t *testing.T, env ...string) (*types.Project, error) {
	t.Helper()
	if v.profile != "" {
		env = append(env, "COMPOSE_PROFILES="+v.profile)
	}
	o, err := cli.NewProjectOptions([]string{filepath.Join(dir, v.file)}, cli.WithEnv(env), cli.WithConsistency(true), cli.WithDefaultProfiles())
	if err != nil {
		t.Fatal(err)
	}
	return o.LoadProject(t.Context())
}

func (v variant) loaded(t *testing.T) *types.Project {
	t.Helper()
	p, err := v.load(t, "BROKER_PASSWORD=from-outside")
	if err != nil {
		t.Fatalf("%v: %v", v, err)
	}
	return p
}

// all are the services of every file and profile, by what they are called here.
func all(t *testing.T) map[string]types.ServiceConfig {
	t.Helper()
	found := map[string]types.ServiceConfig{}
	for _, v := range variants {
		for name, s := range v.loaded(t).Services {
			found[v.file+" "+v.profile+" "+name] = s
		}
	}
	return found
}

// No file is overlooked, and each has what it says.
func TestServicesOfEachFile(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.Contains(read(t, file), "\nservices:") && !slices.ContainsFunc(variants, func(v variant) bool { return v.file == filepath.Base(file) }) {
			t.Errorf("%s is looked at by no test", file)
		}
	}
	for v, want := range map[variant][]string{
		builtin: {"collector", "waybill"}, rabbitMQ: {"collector", "rabbitmq", "waybill"}, artemis: {"artemis", "collector", "waybill"},
		redis: {"collector", "redis", "waybill"}, services: {"dlq", "gateway", "nats", "registry", "retry", "router"},
	} {
		if got := slices.Sorted(maps.Keys(v.loaded(t).Services)); !slices.Equal(got, want) {
			t.Errorf("%v has the services %v, want %v", v, got, want)
		}
	}
}

// Without a password there is no broker to start: none is in a file.
func TestNoSecretIsInAFile(t *testing.T) {
	for _, v := range []variant{rabbitMQ, artemis, redis} {
		if _, err := v.load(t); err == nil || !strings.Contains(err.Error(), "BROKER_PASSWORD") {
			t.Errorf("%v without the variable: %v", v, err)
		}
	}
	variable := regexp.MustCompile(`\$\{[^}]*\}`)
	secret := regexp.MustCompile(`(?i)(pass|secret|token|key)\w*["']?\s*[:=]\s*\S`)
	inURL := regexp.MustCompile(`://[^/\s]*:[^/\s]+@`)
	for name, text := range files(t) {
		for line := range strings.Lines(text) {
			line = variable.ReplaceAllString(line, "")
			if secret.MatchString(line) || inURL.MatchString(line) {
				t.Errorf("%s: a secret? %s", name, line)
			}
		}
	}
	for v, address := range map[variant]string{rabbitMQ: "WAYBILL_ADAPTER_CONFIG_AMQP_URL", artemis: "WAYBILL_ADAPTER_CONFIG_URL", redis: "WAYBILL_ADAPTER_CONFIG_REDIS_URL"} {
		given := v.loaded(t).Services["waybill"].Environment[address]
		if given == nil || !strings.Contains(*given, "from-outside") {
			t.Errorf("%v: the mesh is not given the password: %v", v, given)
		}
	}
}

func files(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) < 3 {
		t.Fatalf("%d files in %s: %v", len(names), dir, err)
	}
	all := map[string]string{}
	for _, name := range append(names, brokerXML) {
		all[name] = read(t, name)
	}
	return all
}

// brokerXML is what Artemis is given.
var brokerXML = filepath.Join(dir, "..", "brokers", "artemis", "broker.xml")

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What the files name is there: what is mounted, what images are built from, and
// what is built.
func TestPathsAreThere(t *testing.T) {
	there := func(name, path string) {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, s := range all(t) {
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeBind {
				there(name, v.Source)
			}
		}
		for _, f := range s.EnvFiles {
			if f.Required {
				there(name, f.Path)
			}
		}
		if s.Build == nil || s.Build.DockerfileInline != "" {
			continue
		}
		there(name, filepath.Join(s.Build.Context, s.Build.Dockerfile+".dockerignore"))
		program := "./cmd/waybill"
		if given := s.Build.Args["PROGRAM"]; given != nil {
			program = *given
		}
		there(name, filepath.Join(s.Build.Context, program, "main.go"))
	}
}

var pinned = regexp.MustCompile(`^[a-z0-9./-]+:\d+\.\d+\.\d+[a-z0-9.-]*$`)

// Every image is one exact version, those that others are made from included.
func TestImagesArePinned(t *testing.T) {
	for name, s := range all(t) {
		images := []string{s.Image}
		if s.Build != nil {
			images = bases(t, s.Build)
		}
		if len(images) == 0 {
			t.Errorf("%s is made of nothing", name)
		}
		for _, image := range images {
			if !pinned.MatchString(image) {
				t.Errorf("%s: the image %q is not pinned to a version", name, image)
			}
		}
	}
}

// bases are the images that a build begins with.
func bases(t *testing.T, b *types.BuildConfig) (images []string) {
	t.Helper()
	for _, from := range regexp.MustCompile(`(?m)^FROM\s+(\S+)`).FindAllStringSubmatch(containerFile(t, b), -1) {
		if from[1] != "scratch" {
			images = append(images, from[1])
		}
	}
	return images
}

func containerFile(t *testing.T, b *types.BuildConfig) string {
	t.Helper()
	if b.DockerfileInline != "" {
		return b.DockerfileInline
	}
	return read(t, filepath.Join(b.Context, b.Dockerfile))
}

// What we build is static, and does not run as root.
func TestImagesAreStaticAndWithoutRoot(t *testing.T) {
	stage := regexp.MustCompile(`(?m)^FROM\s+\S+(?:\s+AS\s+(\S+))?`)
	for name, s := range all(t) {
		if s.Build == nil {
			continue
		}
		text := containerFile(t, s.Build)
		stages := stage.FindAllStringSubmatchIndex(text, -1)
		last := len(stages) - 1
		if s.Build.Target != "" {
			last = slices.IndexFunc(stages, func(at []int) bool { return at[2] >= 0 && text[at[2]:at[3]] == s.Build.Target })
		}
		if last < 0 {
			t.Errorf("%s: there is no stage %s", name, s.Build.Target)
			continue
		}
		end := len(text)
		if last+1 < len(stages) {
			end = stages[last+1][0]
		}
		if !regexp.MustCompile(`(?m)^USER (waybill|10001)\b`).MatchString(text[stages[last][0]:end]) {
			t.Errorf("%s runs as another user than ours", name)
		}
		if strings.Contains(text, "go build") && !strings.Contains(text, "CGO_ENABLED=0 go build") {
			t.Errorf("%s is not static", name)
		}
	}
}

// Every service says how it is, what it stores outlives its container, and
// nobody can reach it but from this machine.
func TestServices(t *testing.T) {
	for name, s := range all(t) {
		if s.HealthCheck == nil || len(s.HealthCheck.Test) < 2 || s.HealthCheck.Interval == nil {
			t.Errorf("%s has no health check", name)
		}
		if s.Restart != "unless-stopped" {
			t.Errorf("%s is not started again", name)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s is published on %q", name, port.HostIP)
			}
		}
		for other, condition := range s.DependsOn {
			if condition.Condition != types.ServiceConditionHealthy {
				t.Errorf("%s does not wait until %s is healthy", name, other)
			}
		}
	}
	for _, kept := range []struct {
		variant
		name, path string
	}{{builtin, "waybill", "/data"}, {rabbitMQ, "rabbitmq", "/var/lib/rabbitmq"}, {artemis, "artemis", "/var/lib/artemis-instance"}, {services, "nats", "/data"}} {
		if !slices.ContainsFunc(kept.loaded(t).Services[kept.name].Volumes, func(v types.ServiceVolumeConfig) bool {
			return v.Type == types.VolumeTypeVolume && v.Target == kept.path
		}) {
			t.Errorf("what %s stores in %s goes with its container", kept.name, kept.path)
		}
	}
}

// The variables are those that the program reads.
func TestVariablesAreKnown(t *testing.T) {
	known := config.Variables(nil)
	for _, v := range variants[:4] {
		for name := range v.loaded(t).Services["waybill"].Environment {
			if _, ok := known[name]; strings.HasPrefix(name, "WAYBILL_") && !ok {
				t.Errorf("%v: waybill knows no variable %s", v, name)
			}
		}
	}
}

// Artemis is given our configuration, which listens where it is published.
func TestArtemis(t *testing.T) {
	s := artemis.loaded(t).Services["artemis"]
	if !slices.ContainsFunc(s.Volumes, func(v types.ServiceVolumeConfig) bool {
		return v.Source != "" && filepath.Base(v.Source) == "broker.xml" && v.Target == "/var/lib/artemis-instance/etc-override/broker.xml" && v.ReadOnly
	}) {
		t.Errorf("it is given %v", s.Volumes)
	}
	text := read(t, brokerXML)
	if host := s.Environment["JAVA_ARGS_APPEND"]; host == nil || *host != "-Dwaybill.host=0.0.0.0" ||
		!strings.Contains(text, "tcp://${waybill.host:127.0.0.1}:${waybill.stomp:61613}?") || s.Ports[0].Target != 61613 {
		t.Errorf("it does not listen where it is published: %v, %v", host, s.Ports)
	}
}

// The collector listens where the mesh sends its traces, and answers where its
// health is asked.
func TestCollector(t *testing.T) {
	text := read(t, filepath.Join(dir, "collector.yaml"))
	p := builtin.loaded(t)
	collector := p.Services["collector"]
	for _, endpoint := range []string{"endpoint: 0.0.0.0:4318", "endpoint: 0.0.0.0:13133"} {
		if !strings.Contains(text, endpoint) {
			t.Errorf("the collector has no %s", endpoint)
		}
	}
	if len(collector.Ports) != 1 || collector.Ports[0].Target != 4318 || !strings.Contains(strings.Join(collector.HealthCheck.Test, " "), ":13133/") {
		t.Errorf("published are %v, health is asked by %v", collector.Ports, collector.HealthCheck.Test)
	}
	sends := p.Services["waybill"].Environment["OTEL_EXPORTER_OTLP_ENDPOINT"]
	if sends == nil || *sends != "http://127.0.0.1:"+collector.Ports[0].Published {
		t.Errorf("the mesh sends its traces to %v, the collector is published on %s", sends, collector.Ports[0].Published)
	}
}
