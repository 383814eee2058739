// RUN: trc-opt %s -p arch-normalize-softmax-ce --split-input-file --verify-diagnostics
// RUN: not trc-opt %s -p 'arch-normalize-softmax-ce{num-classes=1}' 2>&1 | filecheck %s --check-prefix=CLASSES
// RUN: not trc-opt %s -p 'arch-normalize-softmax-ce{label-smoothing=1.0}' 2>&1 | filecheck %s --check-prefix=SMOOTH
// RUN: not trc-opt %s -p 'arch-normalize-softmax-ce{num-classes=12}' 2>&1 | filecheck %s --check-prefix=OTHER
// CLASSES: num-classes is 1 and should be at least 2
// SMOOTH: label-smoothing is 1.0 and should be in [0, 1)
// OTHER: layer 'l': this loss has 10 classes, but 12 are asked for

// expected-error@+1 {{the number of classes is not known: give arch-normalize-softmax-ce num-classes}}
arch.model @unknown(%x: tensor<?x1x1x10xf32>) {
  arch.output %x
}

// -----

arch.model @differ(%x: tensor<?x1x1x10xf32>) {
  %0 = arch.softmax_ce %x {num_classes = 10} layer "l"
  // expected-error@+1 {{this loss differs from an earlier one}}
  %1 = arch.softmax_ce %0 {num_classes = 10, label_smoothing = 0.2}
  arch.output %1
}
