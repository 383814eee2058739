// RUN: trc-opt %s -p 'plan-create-compile-specs,plan-select-kernels' | filecheck %s
// RUN: trc-opt %s -p 'plan-create-compile-specs,plan-select-kernels{target=cuda}' | filecheck %s
// RUN: echo '{"fc1": "materialised"}' > %t.json
// RUN: trc-opt %s -p 'plan-select-kernels{choices="%t.json"}' | filecheck %s --check-prefix=CHOSEN
// RUN: not trc-opt %s -p 'plan-select-kernels{target=gpu}' --no-reproducer 2>&1 | filecheck %s --check-prefix=TARGET
// RUN: echo '{"fc1": "winograd"}' > %t.bad.json
// RUN: not trc-opt %s -p 'plan-select-kernels{choices="%t.bad.json"}' --no-reproducer 2>&1 | filecheck %s --check-prefix=FORM
// RUN: not trc-opt %s -p 'plan-select-kernels{choices="%t.missing"}' --no-reproducer 2>&1 | filecheck %s --check-prefix=MISSING

// These layers write no form unless one was asked for that is not the default.
// CHECK: arch.fc %0 {out_features = 6} layer "fc1" : tensor<?x1x1x6xf32>
// CHOSEN: arch.fc %0 {out_features = 6} layer "fc1" forms ["fc1 = materialised"]
// TARGET: unknown target 'gpu'; choose one of cpu, cuda
// FORM: layer 'fc1': has no form 'winograd'; it has materialised, deferred
// MISSING: cannot read the kernel choices

arch.model @net(%x: tensor<?x2x2x1xf32>) {
  %0 = arch.flatten %x layer "flatten1" first : tensor<?x1x1x4xf32>
  %1 = arch.fc %0 {out_features = 6} layer "fc1" : tensor<?x1x1x6xf32>
  %2 = arch.relu %1 layer "relu1" : tensor<?x1x1x6xf32>
  %3 = arch.fc %2 {out_features = 3, bias = false} layer "fc2" : tensor<?x1x1x3xf32>
  %4 = arch.softmax_ce %3 {num_classes = 3, label_smoothing = 0.1} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %4
}
