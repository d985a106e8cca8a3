package proof

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Document is a file of Markdown.
type Document struct {
	Path  string // from the root of the source tree
	Lines []string
}

// Read reads the documents below the root of the source tree.
func Read(root string) ([]Document, error) {
	var files []string
	for _, pattern := range []string{
		"*.md", "docs/*.md", "docs/reports/*.md", "loadtest/azsim/README.md",
	} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	var documents []Document
	for _, file := range files {
		d, err := ReadFile(root, file)
		if err != nil {
			return nil, err
		}
		documents = append(documents, d)
	}
	return documents, nil
}

// ReadFile reads one file.
func ReadFile(root, file string) (Document, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Document{}, err
	}
	path, err := filepath.Rel(root, file)
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	return Document{Path: filepath.ToSlash(path), Lines: lines}, err
}

// Block is a fenced block of code.
type Block struct {
	Line     int // of its fence, from 1
	Language string
	Lines    []string
}

// Text is the block without its fences.
func (b Block) Text() string { return strings.Join(b.Lines, "\n") + "\n" }

// Blocks are the fenced blocks.
func (d Document) Blocks() []Block {
	var blocks []Block
	inside := false
	for i, line := range d.Lines {
		switch language, fence := strings.CutPrefix(strings.TrimSpace(line), "```"); {
		case fence && !inside:
			blocks = append(blocks, Block{Line: i + 1, Language: language})
			inside = true
		case fence:
			inside = false
		case inside:
			last := &blocks[len(blocks)-1]
			last.Lines = append(last.Lines, line)
		}
	}
	return blocks
}

// Section are the blocks below the heading of the second level that has this title, up to the next.
func (d Document) Section(title string) []Block {
	first, after := 0, len(d.Lines)+1
	for i, line := range d.Prose() {
		if second, ok := strings.CutPrefix(line, "## "); !ok {
			continue
		} else if second == title {
			first = i + 1
		} else if first > 0 {
			after = i + 1
			break
		}
	}
	return slices.DeleteFunc(d.Blocks(), func(b Block) bool {
		return first == 0 || b.Line < first || b.Line > after
	})
}

// Prose is a copy of the lines in which those of fenced blocks are empty.
func (d Document) Prose() []string {
	lines := slices.Clone(d.Lines)
	for _, b := range d.Blocks() {
		clear(lines[b.Line-1 : min(len(lines), b.Line+len(b.Lines)+1)])
	}
	return lines
}

var (
	heading = regexp.MustCompile(`^#+ +(.*)`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// Anchors are the names of the headings, as GitHub makes them.
func (d Document) Anchors() map[string]bool {
	anchors := map[string]bool{}
	for _, line := range d.Prose() {
		if m := heading.FindStringSubmatch(line); m != nil {
			title := strings.ToLower(linked.ReplaceAllString(m[1], "$1"))
			anchors[strings.ReplaceAll(noSlug.ReplaceAllString(title, ""), " ", "-")] = true
		}
	}
	return anchors
}

// parts are what an entry of the runbook has; those that are true have a command in them.
var parts = []struct {
	name    string
	command bool
}{{"Means", false}, {"See", true}, {"Mend", true}, {"Otherwise", false}}

// Runbook are the entries of a runbook, by title: the sections of the third level within the one of
// the second level that has this title.
func (d Document) Runbook(title string) map[string]string {
	entries := map[string]string{}
	inside, entry := false, ""
	for _, line := range d.Prose() {
		if second, ok := strings.CutPrefix(line, "## "); ok {
			inside, entry = second == title, ""
		} else if third, ok := strings.CutPrefix(line, "### "); ok && inside {
			entry = third
			entries[entry] = ""
		} else if entry != "" {
			entries[entry] += line + "\n"
		}
	}
	return entries
}

// Lacks says what an entry of the runbook lacks: one of its parts, in their order, or the command
// with which you see more or mend it.
func Lacks(entry string) (lacks []string) {
	for _, p := range parts {
		_, text, ok := strings.Cut(entry, "**"+p.name+".** ")
		if !ok {
			lacks = append(lacks, p.name)
			continue
		}
		entry = text
		text, _, _ = strings.Cut(text, "\n**")
		if strings.TrimSpace(text) == "" {
			lacks = append(lacks, p.name)
		} else if p.command && !inline.MatchString(text) {
			lacks = append(lacks, p.name+" with a command")
		}
	}
	return lacks
}

// Command is a command of ours that a document names.
type Command struct {
	Line  int
	Words []string // "distributor", "run", "--config", ...
	Typed []string // the same with what is quoted
}

var (
	inline = regexp.MustCompile("`[^`]*`")
	quoted = regexp.MustCompile(`'[^']*'|"(\\.|[^"\\])*"`)
	// A comment begins a line or follows a blank.
	comment = regexp.MustCompile(`(^|\s)#.*`)
	ours    = regexp.MustCompile(`(?:^|[\s(;|&])(?:bin/)?` +
		`((?:distributor|processor|loadtest|make)(?:[ \t]+[^\n|;&)]*)?)`)
)

// Commands are the commands of shell blocks, of lines that begin with "$ " in others, and of code
// within prose that begins with one of them. A quoted part of a command is the word "Q".
func (d Document) Commands() []Command {
	var commands []Command
	add := func(line int, text string) {
		const hole = "\ue000"
		parts := quoted.FindAllString(text, -1)
		text = comment.ReplaceAllString(quoted.ReplaceAllString(text, hole), "")
		for _, m := range ours.FindAllStringSubmatchIndex(text, -1) {
			c := Command{Line: line}
			rest := parts[strings.Count(text[:m[2]], hole):]
			for word := range strings.FieldsSeq(text[m[2]:m[3]]) {
				c.Words = append(c.Words, strings.ReplaceAll(word, hole, "Q"))
				for ; strings.Contains(word, hole); rest = rest[1:] {
					part := strings.ReplaceAll(rest[0][1:len(rest[0])-1], `\"`, `"`)
					word = strings.Replace(word, hole, part, 1)
				}
				c.Typed = append(c.Typed, word)
			}
			commands = append(commands, c)
		}
	}
	for _, b := range d.Blocks() {
		for i := 0; i < len(b.Lines); i++ {
			line, at := b.Lines[i], b.Line+1+i
			for strings.HasSuffix(line, `\`) && i+1 < len(b.Lines) {
				i++
				line = strings.TrimSuffix(line, `\`) + b.Lines[i]
			}
			typed, prompt := strings.CutPrefix(line, "$ ")
			if prompt || b.Language == "sh" {
				add(at, typed)
			}
		}
	}
	for i, line := range d.Prose() {
		for _, code := range inline.FindAllString(line, -1) {
			code = strings.Trim(code, "`")
			if at := ours.FindStringIndex(code); at != nil && at[0] == 0 {
				add(i+1, code)
			}
		}
	}
	return commands
}
