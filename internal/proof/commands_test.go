package proof

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of docs/commands.md")

const (
	commandsFile = root + "/docs/commands.md"
	// The table stands between two headings, which no command has made.
	tableHead = "## All commands\n\n| command | what it does | flags | seldom needed |\n|---|---|---|---|\n"
	tableTail = "\n## Renamed\n"
)

// compareTable compares the table in docs/commands.md with what the binaries say of themselves;
// make docs-commands writes it.
func (p *programs) compareTable(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(commandsFile)
	must(t, err)
	head, rest, ok := strings.Cut(string(text), tableHead)
	table, tail, ok2 := strings.Cut(rest, tableTail)
	if !ok || !ok2 {
		t.Fatalf("%s has no table, or nothing below it", commandsFile)
	}
	var b strings.Builder
	p.rows(t, &b, []string{"distributor"}, "Send tasks to the queues of many storage accounts")
	p.rows(t, &b, []string{"processor"}, "Take tasks from the queues of many storage accounts and do them")
	if n := strings.Count(b.String(), "\n"); n < 50 || !strings.Contains(b.String(), "`--vm-price`") {
		t.Errorf("only %d commands were found", n)
	}
	if *update {
		must(t, os.WriteFile(commandsFile, []byte(head+tableHead+b.String()+tableTail+tail), 0o644))
	} else if table != b.String() {
		t.Error("the table of docs/commands.md is not what the binaries say; write it by: make docs-commands")
	}
}

// rows writes a row for a command and for each below it, but for what cobra adds to each.
func (p *programs) rows(t *testing.T, b *strings.Builder, command []string, about string) {
	h := p.help(t, command)
	_, first, _ := strings.Cut(p.shown(t, command, "--help"), "\nFlags:\n")
	var often, seldom []string
	for _, m := range helpFlag.FindAllStringSubmatch("\n"+h.options, -1) {
		switch name := "`" + m[2] + "`"; {
		case m[2] == "--help" || m[2] == "--help-all":
		case strings.Contains("\n"+first, m[0]):
			often = append(often, name)
		default:
			seldom = append(seldom, name)
		}
	}
	fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", strings.Join(command, " "), about,
		strings.Join(often, " "), strings.Join(seldom, " "))
	for _, m := range helpCommand.FindAllStringSubmatch(h.list, -1) {
		if m[1] != "help" {
			p.rows(t, b, append(slices.Clone(command), m[1]), m[2])
		}
	}
}
