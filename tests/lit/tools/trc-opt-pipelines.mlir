// Passes, named pipelines, and the ways to write them.

// RUN: trc-opt %s | filecheck %s --check-prefix=NOTHING
// RUN: trc-opt %s -p "" | filecheck %s --check-prefix=NOTHING
// RUN: trc-opt %s -p arch-expand-tree | filecheck %s --check-prefix=NAMED
// RUN: trc-opt %s --passes 'arch-expand-tree{fuse=true}' | filecheck %s --check-prefix=NAMED
// RUN: trc-opt %s --pass-pipeline 'builtin.module( arch-expand-tree{fuse=true},  arch-rename-bn )' | filecheck %s --check-prefix=NAMED
// RUN: cat %s | trc-opt - -p arch-expand-tree | filecheck %s --check-prefix=NAMED
// RUN: trc-opt %s -p 'arch-plan{fuse=true num-classes=10},plan{batch=4}' | filecheck %s --check-prefix=ALL
// RUN: trc-opt %s -p 'arch-plan{fuse=true num-classes=10},plan{batch=4}' | trc-opt | filecheck %s --check-prefix=ALL

// NOTHING-LABEL: arch.model @net
// NOTHING-NEXT:    arch.fc %input {out_features = 10}

// NAMED-LABEL: arch.model @net
// NAMED-NEXT:    arch.fc %input {out_features = 10} layer "fc1"

// ALL-LABEL: arch.model @net
// ALL:       memplan.spec @train_base
// ALL:       memplan.plan @net {mode = packed, total = {{[0-9]+}}}
// ALL:       memplan.tensor @fc1.weight
// ALL:       graph.computation @train
// ALL:       graph.variant @val_last uses @infer
// ALL:       graph.step @train_a
// ALL:       graph.atlas
arch.model @net(%input: tensor<?x1x1x16xf32>) {
  %0 = arch.fc %input {out_features = 10}
  arch.output %0
}
