// Package plant holds the test that the other tests can fail: it plants each of
// the engine's deliberate defects (internal/plant) in turn and runs the tests
// that docs/testing.md says find it.
package plant
