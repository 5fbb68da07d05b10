// Package mutants makes defects in the engine on purpose, to see that the tests
// find them.
//
// Each file NAME.patch says in its first line what the engine does wrong then, and changes production code
// so that it does where mutantOn("NAME") is true. Overlay applies all of them, in the order of their names,
// to copies of the sources, and go build -overlay makes one program that has every mutant; the environment
// variable HOLDFAST_MUTANT selects the one that is wrong. The sources themselves know nothing of it.
//
// The list in tests.txt says which tests find each mutant: a line that ends with a slash is the directory, in test or
// internal, of the tests after it. TestPowerCut runs 48 histories from seed 1, TestEveryMoment 100 or as
// HOLDFAST_HISTORIES says. TestMutants runs them all. A patch that no
// longer applies fails the run with its name: mend it by hand, or run
//
//	go run ./cmd/mutants -refresh
//
// which writes anew all patches whose context alone has changed.
package mutants
