// RUN: trc-opt %s -p 'plan-create-compile-specs{batch=4 train-samples=9},plan-derive-all-shapes' --split-input-file --verify-diagnostics

arch.model @unnamed(%x: tensor<?x1x1x8xf32>) {
  // expected-error@+1 {{arch.fc has no name: run arch-plan first}}
  %0 = arch.fc %x {out_features = 3} : tensor<?x1x1x3xf32>
  %1 = arch.softmax_ce %0 {num_classes = 3} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %1
}

// -----

arch.model @unshaped(%x: tensor<?x1x1x8xf32>) {
  // expected-error@+1 {{layer 'fc1': its shape is unknown: run arch-deduce-shapes first}}
  %0 = arch.fc %x {out_features = 3} layer "fc1"
  %1 = arch.softmax_ce %0 {num_classes = 3} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %1
}

// -----

arch.model @unused(%x: tensor<?x1x1x8xf32>) {
  %0 = arch.fc %x {out_features = 3} layer "fc1" : tensor<?x1x1x3xf32>
  // expected-error@+1 {{layer 'relu1': its result is never used: remove the layer}}
  %1 = arch.relu %0 layer "relu1" : tensor<?x1x1x3xf32>
  %2 = arch.softmax_ce %0 {num_classes = 3} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %2
}

// -----

// expected-error@+1 {{the network must end in its only loss: run arch-normalize-softmax-ce first}}
arch.model @no_loss(%x: tensor<?x1x1x8xf32>) {
  %0 = arch.fc %x {out_features = 3} layer "fc1" : tensor<?x1x1x3xf32>
  arch.output %0
}

// -----

// expected-error@+1 {{the network has no parameters: there is nothing to train}}
arch.model @untrainable(%x: tensor<?x1x1x3xf32>) {
  %0 = arch.softmax_ce %x {num_classes = 3} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %0
}

// -----

// expected-error@+1 {{the network has no layers}}
arch.model @empty(%x: tensor<?x1x1x3xf32>) {
  arch.output %x
}

// -----

arch.model @one_sample(%x: tensor<?x1x1x8xf32>) {
  // expected-error@+1 {{layer 'bn1': batch norm needs at least two values a channel, and train_last, train_lowres_last would have one}}
  %0 = arch.bn1d %x layer "bn1" first : tensor<?x1x1x8xf32>
  %1 = arch.fc %0 {out_features = 3} layer "fc1" : tensor<?x1x1x3xf32>
  %2 = arch.softmax_ce %1 {num_classes = 3} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %2
}
