// RUN: trc-opt --help | filecheck %s
// RUN: trc-opt --list-passes | filecheck %s --check-prefix=PASSES
// RUN: trc-opt --version | filecheck %s --check-prefix=VERSION

// CHECK: usage: trc-opt [FILE] [options]
// CHECK: --split-input-file
// CHECK: A pipeline: 'arch-plan

// PASSES:      passes:
// PASSES-NEXT:   arch-expand-tree{
// PASSES:        graph-build-atlas
// PASSES:      named pipelines:
// PASSES-NEXT:   arch-plan

// VERSION: trc {{.*}}, xDSL 0.75.0
