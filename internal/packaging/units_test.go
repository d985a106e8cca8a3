package packaging

import (
	"bytes"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

var (
	//go:embed root/usr/lib/systemd/system/queuepump-distributor@.service
	distributorUnit string
	//go:embed root/usr/lib/systemd/system/queuepump-processor@.service
	processorUnit string

	//go:embed root/usr/lib/systemd/system/queuepump.target
	target string

	units = map[string]string{
		"queuepump-distributor@.service": distributorUnit,
		"queuepump-processor@.service":   processorUnit,
	}
)

// analyze runs systemd-analyze on a unit of its own name in a folder of its own.
func analyze(t *testing.T, name, text string, args ...string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not here; the package systemd has it")
	}
	file := filepath.Join(t.TempDir(), name)
	proof.Must(t, os.WriteFile(file, []byte(text), 0o600))
	out, err := exec.Command("systemd-analyze", append(args, file)...).CombinedOutput()
	return string(out), err
}

// runnable is a unit whose binary is on this machine; the rest of its command line stands.
func runnable(text string) string {
	return regexp.MustCompile(`/usr/bin/\w+`).ReplaceAllString(text, "/bin/true")
}

// systemd takes an unknown directive for nothing and says so in its log, which fails here.
func TestSystemdFindsNothingWrongWithTheUnits(t *testing.T) {
	for name, text := range units {
		text = runnable(text)
		verify := func(text string) (string, error) {
			return analyze(t, name, text, "verify", "--man=no")
		}
		if out, err := verify(text); err != nil || out != "" {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if out, _ := verify(strings.Replace(text, "KillMode=", "KilMode=", 1)); out == "" {
			t.Errorf("%s: a misspelt directive is not found", name)
		}
	}
	if out, err := analyze(t, "queuepump.target", target, "verify", "--man=no"); err != nil || out != "" {
		t.Errorf("%v\n%s", err, out)
	}
}

// The drop-ins that docs/service.md shows, put behind the unit as systemd reads them.
func TestSystemdFindsNothingWrongWithTheDropInsOfTheDocument(t *testing.T) {
	const file = "../../docs/service.md"
	doc, err := proof.ReadFile("../..", file)
	proof.Must(t, err)
	n := 0
	for _, b := range doc.Blocks() {
		if b.Language != "ini" {
			continue
		}
		n++
		text := runnable(processorUnit) + b.Text()
		out, err := analyze(t, "queuepump-processor@.service", text, "verify", "--man=no")
		if err != nil || out != "" {
			t.Errorf("%s:%d: %v\n%s", file, b.Line, err, out)
		}
	}
	if n < 4 {
		t.Errorf("%s shows %d drop-ins", file, n)
	}
}

func TestUnitsAreHardened(t *testing.T) {
	const most = "30" // tenths of the level that systemd-analyze shows
	for name, text := range units {
		secure := func(text string) (string, error) {
			return analyze(t, name, text, "security", "--offline=true", "--no-pager", "--threshold="+most)
		}
		if out, err := secure(text); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if _, err := secure("[Service]\nExecStart=/bin/true\n"); err == nil {
			t.Errorf("%s: a service without hardening passes", name)
		}
	}
}

// directives are the lines of a unit without its comments.
func directives(text string) (list []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			list = append(list, line)
		}
	}
	return list
}

// What a process relies on when systemd runs it.
func TestUnitsGiveProcessesWhatTheyNeed(t *testing.T) {
	for name, text := range units {
		list := directives(text)
		for _, want := range []string{
			"Type=notify", "NotifyAccess=main", "WatchdogSec=60s", "Restart=on-failure",
			"EnvironmentFile=/etc/queuepump/%i.env", "ExecReload=/bin/kill -HUP $MAINPID",
			"PartOf=queuepump.target", "WantedBy=multi-user.target queuepump.target",
			"KillMode=mixed", "OOMPolicy=continue", "SuccessExitStatus=130 143",
		} {
			if !slices.Contains(list, want) {
				t.Errorf("%s has no %s", name, want)
			}
		}
		if strings.Contains(text, "MemoryDenyWriteExecute=yes") {
			t.Errorf("%s: programs with a just-in-time compiler would not run", name)
		}
	}
}

// The units differ in what is the distributor's or the processor's own, and in nothing else.
func TestUnitsAreAlike(t *testing.T) {
	own := regexp.MustCompile(`^(Description|Documentation|ExecStart|RestartPreventExitStatus)=`)
	shared := func(text string) []string {
		return slices.DeleteFunc(directives(text), own.MatchString)
	}
	d, p := shared(distributorUnit), shared(processorUnit)
	if !slices.Equal(d, p) {
		t.Errorf("of the distributor:\n%s\nof the processor:\n%s",
			strings.Join(d, "\n"), strings.Join(p, "\n"))
	}
}

func TestScriptsAreShell(t *testing.T) {
	files, err := filepath.Glob("scripts/*.sh")
	if err != nil || len(files) < 3 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		proof.Must(t, err)
		if !bytes.HasPrefix(text, []byte("#!/bin/sh\n")) {
			t.Errorf("%s is not begun as a script of sh", file)
		}
		if out, err := exec.Command("sh", "-n", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}
