# Judges what run.sh found: awk -f judge.awk excluded.txt RESULTS. A result is a line: a suite, a test,
# and PASS, FAIL or SKIP. Tests that have no tests below them are counted.
function wrong(text) { print "suites: " text; bad = 1 }
/^#/ { next }
NR == FNR && $2 + 0 { least[$1] = $2; next }
NR == FNR { why[$1 " " $2] = NF > 2; next }
{ status[$1 " " $2] = $3 }
END {
	for (name in status) {
		above = name
		if (sub("/[^/]*$", "", above)) below[above] = below[above] status[name]
	}
	for (name in status) {
		passes = status[name] == "PASS"
		split(name, word, " ")
		if (!(name in below)) n[word[1], passes]++
		# One with tests below it may fail by itself.
		if (name in below ? status[name] == "FAIL" && below[name] !~ /FAIL/ : passes == (name in why))
			wrong(status[name] ": " name (name in why ? ", which is excluded" : ""))
	}
	for (name in why) {
		if (!why[name]) wrong("excluded without a reason: " name)
		if (!(name in status) || name in below) wrong("excluded, and is no test that ran: " name)
	}
	for (suite in least) {
		printf "%-14s %3d pass, %d do not\n", suite, n[suite, 1], n[suite, 0]
		if (n[suite, 1] < least[suite]) wrong(suite ": at least " least[suite] " passed before")
	}
	exit bad
}
