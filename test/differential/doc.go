// Package differential compares Holdfast with bbolt and with a model of both.
//
// A History makes up operations from a seed and knows, from nested ordered maps
// in memory, what each has to give. Any number of engines can be made to follow
// it: every result, every error and the order of every iteration is compared.
// The engines may hold a file each, or take turns on one.
//
// Differences that are meant are left out where bbolt takes part:
//
//   - the value of a key that the same transaction put with a nil value: nil in
//     bbolt, empty and not nil in Holdfast;
//   - where a cursor goes with Next or Prev after its bucket was changed, also
//     through the cursor's own Delete: bbolt may pass over a key, or meet one that was
//     put, Holdfast goes on from the key where it stood and meets none (TestWalks);
//   - Last and Prev in a bucket from which the same transaction removed
//     elements: bbolt, meeting a page that lost all of them, may never return;
//   - in such a bucket, where a cursor stands that went beyond an end;
//   - MoveBucket of a bucket that the same transaction changed: bbolt loses the
//     changes;
//   - handles of deleted buckets;
//   - names of buckets above MaxKeySize, which bbolt takes and Holdfast refuses.
//
// Seeds and durations are chosen as package soak says: HOLDFAST_SEED,
// HOLDFAST_HISTORIES, and HOLDFAST_SOAK for TestSoak. HOLDFAST_TRACE prints each
// operation.
package differential
