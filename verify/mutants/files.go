package mutants

// fileMutants break what the file store promises.
var fileMutants = []Mutant{
	{
		Name: "a symbolic link is followed", Rule: "files",
		File: "filestore/store.go", Old: "		if !info.Mode().IsRegular() {", New: "		if false && !info.Mode().IsRegular() {",
		Dir: "filestore", Run: "TestSymbolicLinks",
	},
	{
		Name: "the directory is everybody's", Rule: "files",
		File: "filestore/store.go", Old: "if err := os.MkdirAll(s.dir, 0o700); err != nil {", New: "if err := os.MkdirAll(s.dir, 0o755); err != nil {",
		Dir: "filestore", Run: "TestDirectoryAndFiles",
	},
	{
		Name: "a dead process's claim lives on", Rule: "files",
		File: "filestore/moves.go", Old: "	r.settle(dead, now)\n	refused := f(r, now, dead)", New: "	r.settle(func(string) bool { return false }, now)\n	refused := f(r, now, dead)",
		Dir: "filestore", Run: "TestKilledHolder|TestClaimsOfADead",
	},
	{
		Name: "nobody looks for the dead", Rule: "6.9",
		File: "filestore/wait.go", Old: "same && now < l.full && now < l.dueAt(&s.waiting) && !slices.ContainsFunc(l.holders, s.dead)", New: "same",
		Dir: "filestore", Run: "TestKilledHolder|TestLostMessage",
	},
	{
		Name: "a break tells nobody", Rule: "files",
		File: "filestore/moves.go", Old: "if st.State == lease.Held && seal.By != \"\" {", New: "if false {",
		Dir: "filestore", Run: "TestConformance/seal",
	},
}
