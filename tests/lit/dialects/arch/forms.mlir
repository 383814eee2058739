// Kernel forms on layers: text, generic text, and what is no form.
// RUN: trc-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK: arch.conv %x {out_channels = 8, kernel = 1} layer "conv1" first forms ["conv1 = stats"] : tensor<?x8x8x8xf32>
// CHECK-NEXT: arch.cbr {{.*}} parts ["conv2", "bn1", "relu1"] forms ["conv2 = norm+stats", "bn1 = materialised"]
arch.model @m(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.conv %x {out_channels = 8, kernel = 1} layer "conv1" first forms ["conv1 = stats"] : tensor<?x8x8x8xf32>
  %1 = arch.cbr %0 {out_channels = 8, kernel = 1} layer "conv2" parts ["conv2", "bn1", "relu1"] forms ["conv2 = norm+stats", "bn1 = materialised"] : tensor<?x8x8x8xf32>
  arch.output %1
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{'conv1: stats' is no choice of a form: it looks like 'conv1 = stats+norm'}}
  %0 = arch.conv %x {out_channels = 8, kernel = 1} layer "conv1" forms ["conv1: stats"]
  // expected-error@+1 {{'conv2 = stats+' is no choice of a form}}
  %1 = arch.conv %0 {out_channels = 8, kernel = 1} layer "conv2" forms ["conv2 = stats+"]
  // expected-error@+1 {{a form is chosen for 'conv1'; the layer is conv3, bn1, relu1}}
  %2 = arch.cbr %1 {out_channels = 8, kernel = 1} layer "conv3" parts ["conv3", "bn1", "relu1"] forms ["conv1 = stats"]
  // expected-error@+1 {{the form of 'conv4' is chosen twice}}
  %3 = arch.conv %2 {out_channels = 8, kernel = 1} layer "conv4" forms ["conv4 = stats", "conv4 = plain"]
  arch.output %3
}
