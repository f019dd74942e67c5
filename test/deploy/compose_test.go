// Package deploy tests what deploy/compose says, as far as that goes without
// Docker.
package deploy

import (
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

// load reads the compose file as Docker does: against the schema, with these
// variables.
func load(t *testing.T, env ...string) (*types.Project, error) {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{filepath.Join(dir, "compose.yaml")}, cli.WithEnv(env), cli.WithConsistency(true))
	if err != nil {
		t.Fatal(err)
	}
	return o.LoadProject(t.Context())
}

func loaded(t *testing.T) *types.Project {
	t.Helper()
	p, err := load(t, "RABBITMQ_PASSWORD=from-outside")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Without a password there is nothing to start: none is in a file.
func TestNoSecretIsInAFile(t *testing.T) {
	if _, err := load(t); err == nil || !strings.Contains(err.Error(), "RABBITMQ_PASSWORD") {
		t.Errorf("without the variable: %v", err)
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
	if p := loaded(t); !strings.Contains(*p.Services["waybill"].Environment["WAYBILL_ADAPTER_CONFIG_AMQP_URL"], "from-outside") {
		t.Error("the mesh is not given the password")
	}
}

func files(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) < 3 {
		t.Fatalf("%d files in %s: %v", len(names), dir, err)
	}
	all := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	return all
}

var pinned = regexp.MustCompile(`^[a-z0-9./-]+:\d+\.\d+\.\d+[a-z0-9.-]*$`)

// Every image is one exact version, those that others are made from included.
func TestImagesArePinned(t *testing.T) {
	for name, s := range loaded(t).Services {
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
	text := b.DockerfileInline
	if text == "" {
		file, err := os.ReadFile(filepath.Join(b.Context, b.Dockerfile))
		if err != nil {
			t.Fatal(err)
		}
		text = string(file)
	}
	for _, from := range regexp.MustCompile(`(?m)^FROM\s+(\S+)`).FindAllStringSubmatch(text, -1) {
		images = append(images, from[1])
	}
	return images
}

// Every service says how it is, what it stores outlives its container, and
// nobody can reach it but from this machine.
func TestServices(t *testing.T) {
	p := loaded(t)
	for name, s := range p.Services {
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
	for name, path := range map[string]string{"waybill": "/data", "rabbitmq": "/var/lib/rabbitmq"} {
		kept := slices.ContainsFunc(p.Services[name].Volumes, func(v types.ServiceVolumeConfig) bool {
			return v.Type == types.VolumeTypeVolume && v.Target == path
		})
		if !kept {
			t.Errorf("what %s stores in %s goes with its container", name, path)
		}
	}
}

// The variables are those that the program reads.
func TestVariablesAreKnown(t *testing.T) {
	known := config.Variables(nil)
	for name := range loaded(t).Services["waybill"].Environment {
		if _, ok := known[name]; strings.HasPrefix(name, "WAYBILL_") && !ok {
			t.Errorf("waybill knows no variable %s", name)
		}
	}
}

// The collector listens where the mesh sends its traces, and answers where its
// health is asked.
func TestCollector(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(dir, "collector.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	collector := loaded(t).Services["collector"]
	for _, endpoint := range []string{"endpoint: 0.0.0.0:4318", "endpoint: 0.0.0.0:13133"} {
		if !strings.Contains(string(text), endpoint) {
			t.Errorf("the collector has no %s", endpoint)
		}
	}
	if len(collector.Ports) != 1 || collector.Ports[0].Target != 4318 || !strings.Contains(strings.Join(collector.HealthCheck.Test, " "), ":13133/") {
		t.Errorf("published are %v, health is asked by %v", collector.Ports, collector.HealthCheck.Test)
	}
	sends := loaded(t).Services["waybill"].Environment["OTEL_EXPORTER_OTLP_ENDPOINT"]
	if sends == nil || *sends != "http://127.0.0.1:"+collector.Ports[0].Published {
		t.Errorf("the mesh sends its traces to %v, the collector is published on %s", sends, collector.Ports[0].Published)
	}
}
