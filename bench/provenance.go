package bench

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Provenance says what was measured, where and when.
type Provenance struct {
	Commit  string    `json:"commit"`  // short hash; empty outside of a git tree
	Changed bool      `json:"changed"` // files differed from the commit
	Note    string    `json:"note"`    // what changed, in a person's words
	Command string    `json:"command"`
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"` // that it took
	CPU     string    `json:"cpu"`
	Cores   int       `json:"cores"`
	System  string    `json:"system"`
	Go      string    `json:"go"`
	// Load is the load averages over 1, 5 and 15 minutes before it began; empty where there are none.
	Load string `json:"load"`
	// Placement says on which cores client and server were, Rival the version of azqueue. Both are
	// empty of a soak.
	Placement string `json:"placement,omitempty"`
	Rival     string `json:"rival,omitempty"`
}

// here is the provenance of what begins now in the working directory.
func here(command, note string) Provenance {
	p := Provenance{
		Command: command, Note: note, Began: time.Now().UTC().Truncate(time.Second),
		CPU: cpuModel(), Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH,
		Go: runtime.Version(), Commit: git("rev-parse", "--short", "HEAD"),
		// Files that measurements write do not change the measured program.
		Changed: git("status", "--porcelain", "--untracked-files=no", "--", "*.go", "go.mod") != "",
	}
	if release := firstLine("/proc/sys/kernel/osrelease"); release != "" {
		p.System = "Linux " + release + ", " + runtime.GOARCH
	}
	if load := strings.Fields(firstLine("/proc/loadavg")); len(load) > 3 {
		p.Load = strings.Join(load[:3], " ")
	}
	return p
}

// revision is the commit, and that it is not quite that if it is not.
func (p Provenance) revision() string {
	if p.Changed {
		return p.Commit + " with changes"
	}
	return p.Commit
}

// git is what git prints, "" if it cannot.
func git(args ...string) string {
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func firstLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// cpuModel is the processor's name for itself.
func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok &&
			strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
